//! Memory that this process may still take, and settings that make the allocator return free memory
//! to the system. `serve` applies the settings first, and warns with the available memory.

#[cfg(target_os = "linux")]
use std::fs;

#[cfg(all(target_os = "linux", target_env = "gnu"))]
use crate::restart;

/// Settings of jemalloc, the allocator of the program `peeklock` (see its TUNING.md): free pages
/// return to the system within a second, even if no thread allocates.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const JEMALLOC_OPTIONS: &str = "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
/// Arenas of jemalloc per core, shared by all threads.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ARENAS_PER_CORE: usize = 2;
/// Setting of the system's allocator, for hosts that use it: freed blocks of at least this size
/// return to the system.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const MMAP_THRESHOLD: &str = "524288";

/// Makes the allocator return free memory to the system soon; with its default settings it keeps
/// most memory of an attack for hours or permanently
/// ([decision 35](docs/decisions/0035-the-program-uses-jemalloc.md)). Allocators read settings only
/// from the environment and at the start of a program, so this restarts the program in the same
/// process. Settings that exist are not changed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn set_allocator_options() {
    use std::env;
    use std::os::unix::process::CommandExt as _;
    use std::thread::available_parallelism;

    let is_set = |name: &&str| env::var_os(name).is_some();
    let mut variables = Vec::new();
    if !is_set(&"_RJEM_MALLOC_CONF") {
        let arenas = ARENAS_PER_CORE * available_parallelism().map_or(1, usize::from);
        variables.push(("_RJEM_MALLOC_CONF", format!("{JEMALLOC_OPTIONS},narenas:{arenas}")));
    }
    let of_system = ["MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"];
    if !of_system.iter().chain(&["GLIBC_TUNABLES"]).any(is_set) {
        variables.extend(of_system.map(|name| (name, MMAP_THRESHOLD.to_owned())));
    }
    if variables.is_empty() {
        return;
    }
    if let Some(mut program) = restart::this_program() {
        // `exec` returns only if it fails; then the program goes on without the settings.
        let _error = program.envs(variables).exec();
    }
}

/// Does nothing: other systems have other allocators.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub const fn set_allocator_options() {}

/// Available memory in bytes: of the machine or of the control group, whichever is less. None if
/// unknown.
#[cfg(target_os = "linux")]
pub fn available_bytes() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| machine_bytes(&text));
    let own = fs::read_to_string("/proc/self/cgroup").ok();
    let own = own.as_deref().and_then(group_of).unwrap_or_default();
    let number = |name: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup{own}/{name}")).ok()?.trim().parse::<u64>().ok()
    };
    // Without a limit the file contains `max`, which does not parse as a number.
    let group =
        number("memory.max").map(|max| max.saturating_sub(number("memory.current").unwrap_or(0)));
    [machine, group].into_iter().flatten().min()
}

/// Path of the control group of a process, relative to the mount point; empty for the root and
/// within a container.
#[cfg(target_os = "linux")]
fn group_of(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    Some(path.trim_end_matches('/')).filter(|path| !path.contains(".."))
}

/// Available memory, which this system does not report.
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
    fn the_group_of_a_service_is_its_path() {
        assert_eq!(
            group_of("0::/system.slice/peeklock.service\n"),
            Some("/system.slice/peeklock.service")
        );
        assert_eq!(group_of("12:cpu:/x\n0::/\n"), Some(""));
        assert_eq!(group_of("0::/../x\n"), None);
        assert_eq!(group_of("1:name=systemd:/x\n"), None);
    }

    #[test]
    fn available_memory_is_read_in_bytes() {
        let text = "MemTotal:       16000 kB\nMemAvailable:    8000 kB\n";
        assert_eq!(machine_bytes(text), Some(8_192_000));
        assert_eq!(machine_bytes("MemTotal: 1 kB\n"), None);
    }
}
