//! How much memory this process may still take, as far as the system tells.

#[cfg(target_os = "linux")]
use std::fs;

/// The memory that is available: of the machine or of the control group, whichever is less.
#[cfg(target_os = "linux")]
pub fn available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_bytes(&text));
    let number = |name: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    // Without a limit the file says `max`, which is no number.
    let group =
        number("memory.max").map(|max| max.saturating_sub(number("memory.current").unwrap_or(0)));
    [machine, group].into_iter().flatten().min()
}

/// The memory that is available: this system does not tell.
#[cfg(not(target_os = "linux"))]
pub const fn available_bytes() -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1 << 10)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn available_memory_is_read_in_bytes() {
        let text = "MemTotal:       16000 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(machine_bytes(text), Some(8_192_000));
        assert_eq!(machine_bytes("MemTotal: 1 kB\n"), None);
    }
}
