//! A machine for one page, and its terminals.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use crate::database::Postgres;
use crate::set_up::set_up;

/// Longest wait for output.
const PATIENCE: Duration = Duration::from_secs(120);

/// Output of a terminal, and whether the terminal has closed.
type Printed = Arc<(Mutex<(String, bool)>, Condvar)>;

/// A shell on the machine of a page.
pub struct Shell {
    process: Child,
    input: Option<ChildStdin>,
    printed: Printed,
}

impl Shell {
    /// Types commands and ends the input, as the only commands of this terminal.
    pub fn type_all(&mut self, commands: &str) {
        let mut input = self.input.take().expect("an open input");
        input.write_all(commands.as_bytes()).unwrap();
    }

    /// Pastes commands and returns their output, or the output up to the failure if one of them fails.
    pub fn paste(&mut self, commands: &str) -> Result<String, String> {
        const END: &str = "--- end of the block ---\n";
        let from = self.printed.0.lock().unwrap().0.len();
        let script = format!("{{\n{commands}\n}} </dev/null\necho '{}'\n", END.trim_end());
        // A shell that a failed command has ended takes no more.
        self.input.as_mut().expect("an open input").write_all(script.as_bytes()).ok();
        let (printed, _) = self.wait_for(from, |printed| printed.ends_with(END));
        match printed.strip_suffix(END) {
            Some(text) => Ok(text.to_owned()),
            None => Err(printed),
        }
    }

    /// Text printed since its start, and whether it satisfies `is_enough` in time.
    pub fn shows(&self, is_enough: impl Fn(&str) -> bool) -> (String, bool) {
        self.wait_for(0, is_enough)
    }

    /// Text printed since `from`, once it satisfies `is_enough`, the shell has closed, or `PATIENCE` is over.
    fn wait_for(&self, from: usize, is_enough: impl Fn(&str) -> bool) -> (String, bool) {
        let (state, changed) = &*self.printed;
        let state = state.lock().unwrap();
        let (state, _) = changed
            .wait_timeout_while(state, PATIENCE, |(text, has_closed)| {
                !*has_closed && !is_enough(&text[from..])
            })
            .unwrap();
        let text = state.0[from..].to_owned();
        let is_enough = is_enough(&text);
        (text, is_enough)
    }

    /// Presses Ctrl-C: ends every process of this terminal, and waits until they have closed it.
    pub fn interrupt(mut self) {
        signal("TERM", &self.process);
        self.input = None;
        let (state, changed) = &*self.printed;
        let state = state.lock().unwrap();
        drop(changed.wait_timeout_while(state, PATIENCE, |(_, has_closed)| !*has_closed));
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        signal("KILL", &self.process);
        self.process.wait().ok();
    }
}

/// Sends a signal to the group of processes that this one leads.
fn signal(name: &str, leader: &Child) {
    let group = format!("-{}", leader.id());
    Command::new("kill").args(["-s", name, "--", &group]).stderr(Stdio::null()).status().ok();
}

/// A machine for one page: a network with only a loopback interface, and a folder.
pub struct Machine {
    holder: Child,
    /// Where its terminals start.
    pub folder: PathBuf,
    /// Variables of its terminals.
    environment: BTreeMap<&'static str, String>,
    /// A PostgreSQL server on it.
    database: Option<Postgres>,
}

impl Machine {
    /// Returns none where the system permits no namespaces; the script reports that.
    pub fn start(page: &str) -> Option<Self> {
        set_up("../support/namespaces")?;
        let folder = empty_folder(page);
        let mut holder = Command::new("unshare")
            .args(["--user", "--map-root-user", "--net"])
            .args(["sh", "-c", "ip link set lo up && echo ready && exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare runs");
        let mut ready = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut ready).unwrap();
        assert_eq!(ready, "ready\n", "the namespace has a loopback interface");
        let programs = Path::new(env!("CARGO_BIN_EXE_peeklock")).parent().unwrap();
        let path = format!("{}:{}", programs.display(), std::env::var("PATH").unwrap());
        let repository = env!("CARGO_MANIFEST_DIR").to_owned();
        let environment = BTreeMap::from([("PATH", path), ("REPOSITORY", repository)]);
        Some(Self { holder, folder, environment, database: None })
    }

    /// Opens a terminal.
    pub fn shell(&self) -> Shell {
        let mut command = Command::new("nsenter");
        command
            .args(["--preserve-credentials", "--user", "--net", "--target"])
            .arg(self.holder.id().to_string())
            .args(["bash", "-euo", "pipefail", "-c"])
            // Both outputs into one pipe, in the order of the lines.
            .arg("exec 2>&1; exec bash -euo pipefail -s")
            .current_dir(&self.folder)
            .env("HOME", &self.folder)
            .env("XDG_CONFIG_HOME", self.folder.join(".config"))
            .envs(&self.environment)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0);
        for (name, _) in std::env::vars() {
            if name.starts_with("PEEKLOCK") || name.to_ascii_uppercase().ends_with("_PROXY") {
                command.env_remove(name);
            }
        }
        let mut process = command.spawn().expect("nsenter runs");
        let input = process.stdin.take();
        let output = process.stdout.take().unwrap();
        let printed = Printed::default();
        let shared = Arc::clone(&printed);
        std::thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                shared.0.lock().unwrap().0.push_str(&String::from_utf8_lossy(&line));
                shared.1.notify_all();
                line.clear();
            }
            shared.0.lock().unwrap().1 = true;
            shared.1.notify_all();
        });
        Shell { process, input, printed }
    }

    /// Puts the programs and libraries of a language in place, as the commands of the page install them. Returns false
    /// where the machine lacks the language.
    pub fn has(&mut self, language: &str) -> bool {
        let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sdk");
        let in_path = |program: &str| Path::new(program).parent().unwrap().display().to_string();
        let link = |from: PathBuf, to: PathBuf| std::os::unix::fs::symlink(from, to).ok();
        let folder = match language {
            "python" => set_up("venv").map(|python| in_path(&python)),
            "javascript" => set_up("js/setup").map(|node| {
                link(sdk.join("js/node_modules"), self.folder.join("node_modules"));
                in_path(&node)
            }),
            "go" => set_up("go/setup").map(|_| {
                for file in ["go.mod", "go.sum"] {
                    std::fs::copy(sdk.join("go").join(file), self.folder.join(file)).unwrap();
                }
                self.environment.insert("GOFLAGS", "-mod=mod".to_owned());
                for place in ["GOMODCACHE", "GOCACHE", "GOPATH"] {
                    let found = Command::new("go").args(["env", place]).output().unwrap();
                    let found = String::from_utf8(found.stdout).unwrap().trim().to_owned();
                    self.environment.insert(place, found);
                }
                String::new()
            }),
            "java" => set_up("java/setup").map(|jar| {
                let libraries = self.folder.join("target/dependency");
                std::fs::create_dir_all(&libraries).unwrap();
                link(PathBuf::from(jar), libraries.join("scenarios.jar"));
                String::new()
            }),
            "chromium" => set_up("../browser/setup").inspect(|_| {
                let modules = sdk.join("../browser/node_modules");
                link(modules, self.folder.join("node_modules"));
            }),
            "postgresql" => Some(self.start_database()),
            _ => panic!("no setup for {language}"),
        };
        let Some(folder) = folder else { return false };
        let is_in_path = self.environment["PATH"].split(':').any(|there| there == folder);
        if !folder.is_empty() && !is_in_path {
            let path = format!("{folder}:{}", self.environment["PATH"]);
            self.environment.insert("PATH", path);
        }
        true
    }
}

impl Machine {
    /// Starts the PostgreSQL server that Debian's package would have started. Returns the folder of
    /// its programs, with a `sudo` that runs them as its superuser.
    fn start_database(&mut self) -> String {
        // In a namespace of its own user, because no server runs as root.
        let within = ["nsenter", "--preserve-credentials", "--user", "--net", "--target"]
            .map(str::to_owned)
            .into_iter()
            .chain([self.holder.id().to_string()])
            .chain(["unshare", "--map-user=postgres", "--map-group=postgres"].map(str::to_owned));
        let database =
            Postgres::start_within("guide", within.collect(), "-c listen_addresses=localhost");
        let programs = self.folder.join(".programs");
        std::fs::create_dir_all(&programs).unwrap();
        let sudo = programs.join("sudo");
        let script = format!(
            "#!/bin/sh\n# sudo -u postgres PROGRAM ...\nshift 2\n\
             PATH={}:$PATH PGHOST={} PGUSER=postgres exec \"$@\"\n",
            Postgres::programs().display(),
            database.folder().display()
        );
        std::fs::write(&sudo, script).unwrap();
        std::fs::set_permissions(&sudo, std::fs::Permissions::from_mode(0o755)).unwrap();
        self.database = Some(database);
        programs.display().to_string()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // It ends within the namespaces of the holder.
        self.database = None;
        self.holder.kill().ok();
        self.holder.wait().ok();
    }
}

/// An empty folder for a page, or for one of its examples.
pub fn empty_folder(name: &str) -> PathBuf {
    let name = name.replace(['/', '.'], "-");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guides").join(name);
    std::fs::remove_dir_all(&folder).ok();
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
