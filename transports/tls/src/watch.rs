//! Thread that checks the certificate files regularly; the server starts it. It compares the
//! content and not the modification time, which can stay the same when a file is replaced by a
//! link, as orchestrators do, or within one tick of the file system's clock. It also repeats the
//! warnings about expiry.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::source::{Reloaded, Tls, now};

/// Interval between two checks, which read a few kilobytes.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Reloads changed files in its own thread until it is dropped, and logs each day that a
/// certificate expires.
pub struct Watch {
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub fn start(tls: &Arc<Tls>) -> io::Result<Self> {
        let tls = Arc::clone(tls);
        let (end, ended) = mpsc::channel();
        let waits = move |each| ended.recv_timeout(each) == Err(RecvTimeoutError::Timeout);
        let look = move || watch_files(&tls, waits);
        let thread = std::thread::Builder::new().name("peeklock-tls".to_owned()).spawn(look)?;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

/// Checks after each wait, until `waits` returns false.
fn watch_files(tls: &Tls, mut waits: impl FnMut(Duration) -> bool) {
    while waits(CHECK_EVERY) {
        match tls.reload() {
            Ok(Reloaded::Unchanged) => {}
            Ok(Reloaded::Changed) => {
                let fingerprint = tls.certificate().fingerprint;
                tracing::info!(fingerprint, "certificate replaced");
            }
            Err(error) => {
                tracing::error!(%error, "the changed certificate cannot be used; the previous one \
                    stays in use");
            }
        }
        tls.log_validity_if_due(now());
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that watches certificates panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::config::TlsConfig;

    fn write_pair(config: &TlsConfig) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(&config.certificate_file, certificate.pem()).unwrap();
        std::fs::write(&config.key_file, key.serialize_pem()).unwrap();
    }

    /// TLS-02: a changed pair is in use within 5 s, even if it changed just after a check. The test
    /// simulates the waits, so no real time passes.
    #[test]
    fn a_changed_pair_is_in_use_within_five_seconds() {
        let name = format!("peeklock-tls-watch-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let [certificate, key] = ["server.pem", "server.key"].map(|file| directory.join(file));
        let config = TlsConfig::of_files(certificate, key);
        write_pair(&config);
        let tls = Tls::open(config.clone()).unwrap();
        let before = tls.certificate().fingerprint;
        let mut passed = Duration::ZERO;
        watch_files(&tls, |each| {
            if passed.is_zero() {
                write_pair(&config);
            } else if tls.certificate().fingerprint != before {
                return false;
            }
            passed += each;
            assert!(passed <= Duration::from_secs(5), "it is not in use");
            true
        });
        assert!(!passed.is_zero());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
