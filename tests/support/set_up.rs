//! What clients in other languages need, made by a script in the folder of each.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// How a script ends where this machine lacks the language.
const LEFT_OUT: i32 = 3;

/// The line that a script prints once everything is there: the interpreter or the program to run. Words after the name of the script are
/// its arguments. None where the machine lacks the language; the script reports that, and this prints it.
pub fn set_up(script: &str) -> Option<String> {
    let mut words = script.split(' ');
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk");
    let script = folder.join(words.next().expect("the script has a name"));
    let made = Command::new(&script).args(words).output().expect("the script runs");
    let errors = String::from_utf8_lossy(&made.stderr);
    if made.status.code() == Some(LEFT_OUT) {
        // Around the harness, which keeps what a test prints that passes.
        writeln!(std::io::stderr(), "{}", errors.trim()).expect("a place to say it");
        return None;
    }
    assert!(made.status.success(), "{}: {errors}", script.display());
    Some(String::from_utf8(made.stdout).expect("text").trim().to_owned())
}
