//! Prerequisites of clients in other languages, installed by a script in the folder of each.

use std::io::Write;
use std::path::Path;
use std::process::Command;

/// Exit code of a script if this machine lacks the language.
const LEFT_OUT: i32 = 3;

/// Runs a script and returns the line that it prints once everything is installed: the interpreter
/// or the program to run. Words after the name of the script are its arguments. Returns `None` if
/// the machine lacks the language; the script's report is printed.
pub fn set_up(script: &str) -> Option<String> {
    let mut words = script.split(' ');
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk");
    let script = folder.join(words.next().expect("the script has a name"));
    let made = Command::new(&script).args(words).output().expect("the script runs");
    let errors = String::from_utf8_lossy(&made.stderr);
    if made.status.code() == Some(LEFT_OUT) {
        // Written directly, because the harness hides the output of a passing test.
        writeln!(std::io::stderr(), "{}", errors.trim()).expect("a place to say it");
        return None;
    }
    assert!(made.status.success(), "{}: {errors}", script.display());
    Some(String::from_utf8(made.stdout).expect("text").trim().to_owned())
}
