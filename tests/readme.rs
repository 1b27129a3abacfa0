//! Is the README true? Its snippets run against the built binary, its program is the example.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/markdown.rs"]
mod markdown;
#[path = "support/set_up.rs"]
mod set_up;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use set_up::set_up;

fn readme() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    std::fs::read_to_string(path).expect("README.md")
}

/// Texts of the code blocks of a language, in order.
fn blocks(language: &str) -> Vec<String> {
    let found = markdown::blocks(&readme()).into_iter();
    found.filter(|block| block.language() == language).map(|block| block.text).collect()
}

/// A broker of the built binary; ends with the test.
struct Served {
    process: Child,
    address: String,
    websocket: String,
    /// Where it listens for AMQP.
    amqp: String,
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_peeklock"))
            .args([
                "serve",
                "--ephemeral",
                "--http",
                "127.0.0.1:0",
                "--ws",
                "127.0.0.1:0",
                "--amqp",
                "127.0.0.1:0",
            ])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary starts");
        let output = process.stdout.take().expect("its output");
        let mut lines = BufReader::new(output).lines().map_while(Result::ok);
        let mut listener = |name: &str| {
            lines
                .find_map(|line| Some(line.trim().strip_prefix(name)?.trim().to_owned()))
                .expect("the banner names the address")
        };
        let address = listener("http ").trim_start_matches("http://").to_owned();
        let websocket = listener("websocket ");
        let amqp = listener("amqp ");
        Self { process, address, websocket, amqp }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// One after the other, on one broker, as somebody does who reads from the top.
#[test]
fn what_is_shown_works_from_the_top() {
    let served = Served::start(&[]);
    the_five_minutes_with_curl_work(&served);
    the_command_line_works(&served);
}

fn the_five_minutes_with_curl_work(served: &Served) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    std::fs::create_dir_all(&folder).expect("a folder to work in");
    let snippets = blocks("sh");
    assert!(!snippets.is_empty());
    for snippet in snippets {
        let script = snippet.replace("127.0.0.1:5300", &served.address);
        let ended = Command::new("bash")
            .args(["-euo", "pipefail", "-c", &script])
            .current_dir(&folder)
            .output()
            .expect("bash runs");
        let said = String::from_utf8_lossy(&ended.stdout);
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert!(ended.status.success(), "{script}\n{said}\n{errors}");
        assert!(said.contains("two coffees"), "{said}");
        assert!(said.contains("order-2"), "{said}");
        assert!(said.contains("one tea204"), "{said}");
    }
}

fn the_command_line_works(served: &Served) {
    let program = Path::new(env!("CARGO_BIN_EXE_peeklock"));
    let folder = program.parent().expect("a folder").display();
    let snippets = blocks("bash");
    let [snippet] = snippets.as_slice() else { panic!("one block of commands") };
    let ended = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &format!("PATH='{folder}':$PATH\n{snippet}")])
        .env("PEEKLOCK_URL", &served.websocket)
        .output()
        .expect("bash runs");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success(), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
    for expected in [
        "sent 1 message to coffee, sequence number 1\n",
        "  table          7 (i32)\n",
        "MaxDeliveryCountExceeded",
        "resubmitted 1 message to coffee\n",
        "sent 1 message to copies, sequence number 1\n",
        "copies  queue        1",
        "an espresso machine\n",
        "  false    region = 'eu'   saw 'us' and 'eu'\n",
        "no rule selects it: no copy\n",
    ] {
        assert!(said.contains(expected), "{expected}\n{said}");
    }
}

/// How to run what the README shows in a language; not at all where the machine lacks it.
type Run = fn(&str) -> Option<Command>;

fn python(snippet: &str) -> Option<Command> {
    let mut command = Command::new(set_up("venv")?);
    command.args(["-c", snippet]);
    Some(command)
}

fn javascript(snippet: &str) -> Option<Command> {
    let mut command = Command::new(set_up("js/setup")?);
    command.args(["--input-type=module", "-e", snippet]).current_dir(sdk("js"));
    Some(command)
}

/// With the versions that the scenarios are run with.
fn go(snippet: &str) -> Option<Command> {
    set_up("go/setup")?;
    let folder = written("readme-go", "main.go", snippet);
    for file in ["go.mod", "go.sum"] {
        std::fs::copy(sdk("go").join(file), folder.join(file)).expect("a file to write");
    }
    let mut command = Command::new("go");
    command.args(["run", "."]).current_dir(folder);
    Some(command)
}

fn java(snippet: &str) -> Option<Command> {
    let jar = set_up("java/setup")?;
    let folder = written("readme-java", "Parcels.java", snippet);
    let mut command = Command::new("java");
    command.args(["-cp", &jar, "Parcels.java"]).current_dir(folder);
    Some(command)
}

/// The folder of an SDK.
fn sdk(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk").join(language)
}

/// A folder with this file.
fn written(folder: &str, file: &str, text: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    std::fs::create_dir_all(&folder).expect("a folder to work in");
    std::fs::write(folder.join(file), text).expect("a file to write");
    folder
}

/// AMQP-01: the lines for Azure SDKs, with the connection string that the program prints.
#[test]
fn the_lines_for_azure_sdks_work() {
    let served = Served::start(&[]);
    let peeklock = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        let ended = command.args(arguments).env("PEEKLOCK_URL", &served.websocket).output();
        let ended = ended.expect("the program runs");
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        String::from_utf8(ended.stdout).expect("text").trim().to_owned()
    };
    peeklock(&["queue", "create", "parcels"]);
    let address = served.amqp.trim_start_matches("amqp://");
    let (url, policy) = (format!("ws://{address}"), "RootManageSharedAccessKey");
    // The port of AMQP serves the command as well.
    let string = peeklock(&["connection-string", "--policy", policy, "--url", &url]);
    let languages: [(&str, Run); 4] =
        [("python", python), ("javascript", javascript), ("go", go), ("java", java)];
    for (language, run) in languages {
        let snippets = blocks(language);
        let [snippet] = snippets.as_slice() else { panic!("one block of {language}") };
        let Some(mut command) = run(snippet) else { continue };
        let ended = command.env("SERVICEBUS_CONNECTION_STRING", &string).output();
        let ended = ended.expect("the interpreter runs");
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{said}\n{}", String::from_utf8_lossy(&ended.stderr));
        assert!(said.contains("two books"), "{language}: {said}");
    }
}

#[test]
fn the_embedding_program_is_the_example() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/embed.rs");
    let example = std::fs::read_to_string(example).expect("examples/embed.rs");
    let program = blocks("rust").pop().expect("a program");
    assert!(example.ends_with(&program), "README and examples/embed.rs differ");
}

#[test]
fn the_declared_queue_is_valid_configuration() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme.toml");
    std::fs::write(&file, blocks("toml").concat()).expect("a file to write");
    let served = Served::start(&["--config", file.to_str().expect("a path")]);
    let url = format!("http://{}/$api/v1/queues/orders", served.address);
    let answer = Command::new("curl").args(["-fsS", &url]).output().expect("curl runs");
    let described = String::from_utf8_lossy(&answer.stdout);
    assert!(described.contains("\"maxDeliveryCount\":3"), "{described}");
    assert!(described.contains("\"lockDuration\":\"PT30S\""), "{described}");
}

#[test]
fn every_example_of_the_table_exists() {
    let text = readme();
    for line in text.lines().filter(|line| line.starts_with("| `cargo run --example ")) {
        let name =
            line.split_whitespace().skip_while(|word| *word != "--example").nth(1).expect("a name");
        let name = name.trim_end_matches('`');
        let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let is_there = [format!("{name}.rs"), format!("{name}/main.rs")]
            .iter()
            .any(|file| examples.join(file).exists());
        assert!(is_there, "{name}");
    }
}
