//! Tests of files that change while a listener runs.

use peeklock_core::time::TimeSpan;
use peeklock_tls::{File, Reloaded, Tls, Validity, Watch};

use super::pair::{
    Server, authority, config, directory, issued, run, shown, talk, trusting, write_pair,
};

/// TLS-02: new connections use a changed pair; open connections continue.
#[test]
fn another_pair_is_used_for_new_connections() {
    run(async {
        let directory = directory("reload");
        let issuer = authority("ours");
        write_pair(&directory, &issuer, |_| {});
        let server = Server::start(config(&directory)).await;
        let client = trusting(&issuer);
        let mut before = server.connect(&client).await.unwrap();
        assert_eq!(server.tls.reload().unwrap(), Reloaded::Unchanged);

        write_pair(&directory, &issuer, |_| {});
        assert_eq!(server.tls.reload().unwrap(), Reloaded::Changed);
        assert_eq!(server.tls.reload().unwrap(), Reloaded::Unchanged);
        let mut after = server.connect(&client).await.unwrap();
        assert_ne!(shown(&before), shown(&after));
        talk(&mut before).await.unwrap();
        talk(&mut after).await.unwrap();
    });
}

/// TLS-02: after an unusable change the previous pair stays in use, and each change is reported
/// once.
#[test]
fn an_unusable_pair_keeps_the_previous_one() {
    run(async {
        let directory = directory("bad-reload");
        let issuer = authority("ours");
        write_pair(&directory, &issuer, |_| {});
        let server = Server::start(config(&directory)).await;
        let client = trusting(&issuer);
        let first = shown(&server.connect(&client).await.unwrap());
        let (certificate, key) =
            ["server.pem", "server.key"].map(|file| directory.join(file)).into();
        let good = [&certificate, &key].map(|file| std::fs::read(file).unwrap());
        let (other, other_key) = issued(&issuer, |_| {});
        let (expired, expired_key) = issued(&issuer, |params| {
            params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        });
        for (texts, file, word) in [
            ([&other, ""], File::Key, "no private key"),
            (["", &other_key], File::Certificate, "no certificates"),
            (["nonsense", "nonsense"], File::Certificate, "no certificates"),
            ([&other, &expired_key], File::Certificate, "do not belong together"),
            ([&expired, &expired_key], File::Certificate, "expired"),
        ] {
            std::fs::write(&certificate, texts[0]).unwrap();
            std::fs::write(&key, texts[1]).unwrap();
            let error = server.tls.reload().unwrap_err();
            assert_eq!(error.file(), file, "{error}");
            assert!(error.to_string().contains(word), "{word}: {error}");
            assert!(!error.to_string().contains("PRIVATE"), "{error}");
            assert_eq!(server.tls.reload().unwrap(), Reloaded::Unchanged, "it is told once");
            assert_eq!(shown(&server.connect(&client).await.unwrap()), first);
        }
        std::fs::remove_file(&key).unwrap();
        assert!(server.tls.reload().is_err());
        assert_eq!(server.tls.reload().unwrap(), Reloaded::Unchanged);
        // A file that comes back unchanged is not a change.
        std::fs::write(&certificate, &good[0]).unwrap();
        std::fs::write(&key, &good[1]).unwrap();
        assert_eq!(server.tls.reload().unwrap(), Reloaded::Unchanged);
        std::fs::write(&certificate, &other).unwrap();
        std::fs::write(&key, &other_key).unwrap();
        assert_eq!(server.tls.reload().unwrap(), Reloaded::Changed);
        assert_ne!(shown(&server.connect(&client).await.unwrap()), first);
    });
}

/// TLS-02: the expiry of a certificate in use is logged from two weeks before, each day, and
/// immediately when it has expired. A replacement ends the warnings.
#[test]
fn the_expiry_of_a_certificate_is_logged_each_day() {
    let directory = directory("remind");
    let issuer = authority("ours");
    write_pair(&directory, &issuer, |_| {});
    let tls = Tls::open(config(&directory)).unwrap();
    let end = tls.certificate().not_after;
    let days = TimeSpan::from_days;
    let moment = TimeSpan::from_ms(1);
    let soon = end.minus(days(14));
    for (now, said) in [
        (soon.minus(moment), None),
        (soon, Some(Validity::EndsSoon)),
        (soon.plus(moment), None),
        (soon.plus(days(1)).minus(moment), None),
        (soon.plus(days(1)), Some(Validity::EndsSoon)),
        (soon.plus(days(3)), Some(Validity::EndsSoon)),
        (end.minus(moment), Some(Validity::EndsSoon)),
        (end, Some(Validity::Ended)),
        (end.plus(moment), None),
        (end.plus(days(1)), Some(Validity::Ended)),
        (end.plus(days(1)).plus(moment), None),
    ] {
        assert_eq!(tls.log_validity_if_due(now), said, "{now}");
    }
    write_pair(&directory, &issuer, |_| {});
    assert_eq!(tls.reload().unwrap(), Reloaded::Changed);
    assert_eq!(tls.log_validity_if_due(soon.minus(moment)), None, "it was said when it came");
    assert_eq!(tls.log_validity_if_due(soon), Some(Validity::EndsSoon), "the next one begins anew");
}

/// TLS-02: changed files are detected without a request.
#[test]
fn changed_files_are_found() {
    run(async {
        let directory = directory("watch");
        let issuer = authority("ours");
        write_pair(&directory, &issuer, |_| {});
        let server = Server::start(config(&directory)).await;
        let before = server.tls.certificate().fingerprint;
        let watch = Watch::start(&server.tls).unwrap();
        write_pair(&directory, &issuer, |_| {});
        while server.tls.certificate().fingerprint == before {
            tokio::task::yield_now().await;
            std::thread::yield_now();
        }
        drop(watch);
    });
}

/// TLS-02: a start with unusable files is refused, and the error names the file.
#[test]
fn a_start_without_a_pair_is_refused() {
    let directory = directory("start");
    let issuer = authority("ours");
    let open = || Tls::open(config(&directory)).map(drop).unwrap_err();
    let error = open();
    assert_eq!(error.file(), File::Certificate);
    assert!(error.to_string().contains("server.pem"), "{error}");
    write_pair(&directory, &issuer, |_| {});
    Tls::open(config(&directory)).unwrap();
    std::fs::write(directory.join("server.key"), "x".repeat(2 << 20)).unwrap();
    assert!(open().to_string().contains("more than 1048576 bytes"));
    let (_, key) = issued(&issuer, |_| {});
    std::fs::write(directory.join("server.key"), key).unwrap();
    assert!(open().to_string().contains("do not belong together"));
}
