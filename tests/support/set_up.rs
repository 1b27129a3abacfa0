//! What clients in other languages need, made by a script in the folder of each.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// How a script ends where this machine lacks the language.
const LEFT_OUT: i32 = 3;

/// What the script prints once everything is there: the interpreter or the program to run. None where the machine lacks the language, which is
/// said then.
pub fn set_up(script: &str) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(script);
    let made = Command::new(&script).output().expect("the script runs");
    let errors = String::from_utf8_lossy(&made.stderr);
    if made.status.code() == Some(LEFT_OUT) {
        // Around the harness, which keeps what a test prints that passes.
        writeln!(std::io::stderr(), "{}", errors.trim()).expect("a place to say it");
        return None;
    }
    assert!(made.status.success(), "{}: {errors}", script.display());
    Some(String::from_utf8(made.stdout).expect("text").trim().to_owned())
}
