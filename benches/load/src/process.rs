//! Resource use of a process, read from `/proc`; absent on other systems. The report compares
//! values from before and after a phase.

use std::time::Duration;

/// A process on this machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(u32);

impl Process {
    /// The process with this id.
    pub const fn new(id: u32) -> Self {
        Self(id)
    }

    /// The current process.
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// CPU time of all its threads, in user and system mode; usually in steps of 10 ms.
    pub fn cpu(self) -> Option<Duration> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.0)).ok()?;
        // The name, in parentheses, may have spaces and parentheses.
        let (_, fields) = stat.rsplit_once(')')?;
        let mut ticks = fields.split_whitespace().skip(11).map(str::parse::<u64>);
        let ticks = ticks.next()?.ok()?.checked_add(ticks.next()?.ok()?)?;
        Some(Duration::from_millis(ticks.checked_mul(1_000)? / ticks_per_second()))
    }

    /// Resident memory.
    pub fn resident_bytes(self) -> Option<u64> {
        self.status("VmRSS:")
    }

    /// Maximum resident memory. The system keeps both counts separately for each CPU and adds them
    /// up in steps, so this may be some hundred KiB below the actual maximum.
    pub fn resident_bytes_max(self) -> Option<u64> {
        self.status("VmHWM:")
    }

    /// Bytes written to files since its start. Excludes bytes written to sockets, unless one call
    /// writes them in several pieces.
    pub fn written_bytes(self) -> Option<u64> {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.0)).ok()?;
        io.lines().find_map(|line| line.strip_prefix("wchar:"))?.trim().parse().ok()
    }

    /// Number of its open sockets.
    pub fn sockets(self) -> Option<u64> {
        let files = std::fs::read_dir(format!("/proc/{}/fd", self.0)).ok()?;
        let is_socket = |file: &std::fs::DirEntry| {
            std::fs::read_link(file.path())
                .is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
        };
        u64::try_from(files.flatten().filter(is_socket).count()).ok()
    }

    fn status(self, name: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
        kib.checked_mul(1_024)
    }
}

#[cfg(unix)]
fn ticks_per_second() -> u64 {
    rustix::param::clock_ticks_per_second().max(1)
}

#[cfg(not(unix))]
const fn ticks_per_second() -> u64 {
    100
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_uses_cpu_and_memory() {
        const HELD_BYTES: usize = 64 << 20;
        let own = Process::own();
        drop(std::hint::black_box(vec![1_u8; HELD_BYTES]));
        let before = own.cpu().unwrap();
        let mut sum = 0_u64;
        while own.cpu().unwrap() < before + Duration::from_millis(20) {
            sum = std::hint::black_box((0..10_000).fold(sum, u64::wrapping_add));
        }
        let (now, most) = (own.resident_bytes().unwrap(), own.resident_bytes_max().unwrap());
        // The two values are not compared with each other: they are separate readings of inexact
        // counts.
        assert!(1 << 20 < now, "{now}");
        assert!((HELD_BYTES - (4 << 20)) as u64 <= most, "{most}");
    }

    #[test]
    fn absent_process_has_no_figures() {
        let nobody = Process::new(u32::MAX);
        assert!(nobody.cpu().is_none() && nobody.resident_bytes().is_none());
    }
}
