//! `peeklock context`: named brokers. `cli.rs` dispatches to it; `contexts.rs` reads and writes the
//! file.

use std::io::Read as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use peeklock::auth_sas::ConnectionString;
use peeklock::websocket::client::{certificates, url_of};
use serde_json::json;

use super::connect::Output;
use super::contexts::{self, Context, Contexts, DEFAULT, DEFAULT_URL};
use super::message::{Form, Writer};
use super::terminal::{Cell, Out, Table, WriteOutcome, note};
use super::{Failure, exit};

pub const HELP: &str = "\
Examples:
  peeklock context add prod ws://broker.internal:5301
  peeklock context add prod --connection-string-file shop.txt --ca authority.pem
  peeklock context use prod
  peeklock context list
  peeklock queue list --context default            use the broker on this machine for one command

Contexts are stored in $XDG_CONFIG_HOME/peeklock/contexts.toml, or below ~/.config, in a file \
that only you can read. A command connects to the first of these that is given: --url or \
--context, PEEKLOCK_CONNECTION_STRING, PEEKLOCK_URL, PEEKLOCK_CONTEXT, the context in use, the \
broker that runs in ./data, ws://127.0.0.1:5301.";

/// Maximum bytes of a token.
const TOKEN_BYTES_MAX: u64 = 64 << 10;

#[derive(Subcommand)]
pub enum ContextCommand {
    /// Store a broker under a name
    Add(AddFlags),
    /// Use this broker for all commands from now on; `default` is ws://127.0.0.1:5301
    Use(NameFlags),
    /// List all contexts
    #[command(visible_alias = "ls")]
    List(ListFlags),
    /// Remove a context
    Remove(NameFlags),
    /// Show the context in use, or another one
    Show(ShowFlags),
}

#[derive(Args)]
pub struct AddFlags {
    /// Name of the context
    #[arg(value_parser = contexts::name)]
    name: String,
    /// URL of the broker, such as ws://127.0.0.1:5301 [default: the broker of the connection
    /// string]
    #[arg(value_parser = contexts::url, required_unless_present = "connection_string_file")]
    url: Option<String>,
    /// Read a connection string from a file, `-` for standard input; commands sign tokens with its
    /// key
    #[arg(long, value_name = "FILE", conflicts_with = "token_file")]
    connection_string_file: Option<String>,
    /// Also trust the authorities in this file, in addition to those of the system
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Read the token for the broker from a file; `-` is standard input
    #[arg(long, value_name = "FILE")]
    token_file: Option<String>,
    /// Use this context from now on
    #[arg(long = "use")]
    is_used: bool,
    /// Replace an existing context of that name
    #[arg(long)]
    force: bool,
}

#[derive(Args)]
pub struct NameFlags {
    /// Name of the context
    name: String,
}

#[derive(Args)]
pub struct ListFlags {
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

#[derive(Args)]
pub struct ShowFlags {
    /// Name of the context [default: the context in use]
    name: Option<String>,
    /// Output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    output: Output,
}

pub fn run(command: &ContextCommand) -> Result<(), Failure> {
    match command {
        ContextCommand::Add(flags) => add(flags),
        ContextCommand::Use(flags) => choose(&flags.name),
        ContextCommand::List(flags) => list(flags.output),
        ContextCommand::Remove(flags) => remove(&flags.name),
        ContextCommand::Show(flags) => show(flags),
    }
}

fn add(flags: &AddFlags) -> Result<(), Failure> {
    let AddFlags { name, .. } = flags;
    if name == DEFAULT {
        return Err(Failure::usage(format!(
            "`{DEFAULT}` already names {DEFAULT_URL}; choose another name"
        )));
    }
    let mut all = Contexts::load()?;
    if all.contexts.contains_key(name) && !flags.force {
        return Err(Failure::ended(
            exit::EXISTS,
            format!("context `{name}` already exists; add --force to replace it"),
        ));
    }
    all.contexts.insert(name.clone(), context_of_flags(flags)?);
    if flags.is_used {
        all.current = Some(name.clone());
    }
    all.save()?;
    note(&if flags.is_used {
        format!("context `{name}` added and in use")
    } else {
        format!("context `{name}` added; use it with `peeklock context use {name}`")
    });
    Ok(())
}

/// Creates the context that the flags describe, and checks the files that they name.
fn context_of_flags(flags: &AddFlags) -> Result<Context, Failure> {
    let token = flags.token_file.as_deref().map(read_secret).transpose()?;
    let string = flags.connection_string_file.as_deref().map(read_connection_string).transpose()?;
    let (connection_string, of_string) = string.unzip();
    let usage = |detail: &str| Failure::usage(detail.to_owned());
    let Some(url) = flags.url.clone().or(of_string) else {
        return Err(usage("a context needs the URL of a broker, such as ws://127.0.0.1:5301"));
    };
    let ca = match &flags.ca {
        None => None,
        Some(file) => {
            certificates(file).map_err(|error| usage(&error.to_string()))?;
            // The path is made absolute, because later commands run in other directories.
            Some(std::path::absolute(file)?)
        }
    };
    Ok(Context { url, connection_string, ca, token })
}

/// A connection string from a file, and the URL of its broker.
fn read_connection_string(file: &str) -> Result<(String, String), Failure> {
    let text = read_secret(file)?;
    let string = ConnectionString::parse(&text)
        .map_err(|error| Failure::usage(format!("`{file}`: {}", error.detail())))?;
    Ok((text, url_of(&string)))
}

fn read_secret(file: &str) -> Result<String, Failure> {
    let failed = |error: std::io::Error| Failure::usage(format!("`{file}`: {error}"));
    let mut token = String::new();
    if file == "-" {
        std::io::stdin().lock().take(TOKEN_BYTES_MAX).read_to_string(&mut token)
    } else {
        let file = std::fs::File::open(file).map_err(failed)?;
        file.take(TOKEN_BYTES_MAX).read_to_string(&mut token)
    }
    .map_err(failed)?;
    match token.trim() {
        "" => Err(Failure::usage(format!("`{file}` is empty"))),
        token => Ok(token.to_owned()),
    }
}

fn choose(name: &str) -> Result<(), Failure> {
    let mut all = Contexts::load()?;
    let context = all.named(name)?;
    all.current = (name != DEFAULT).then(|| name.to_owned());
    all.save()?;
    note(&format!("commands now connect to {}", context.url));
    for variable in ["PEEKLOCK_URL", "PEEKLOCK_CONTEXT"] {
        if std::env::var_os(variable).is_some_and(|value| !value.is_empty()) {
            note(&format!("but {variable} is set and overrides the context"));
        }
    }
    Ok(())
}

fn remove(name: &str) -> Result<(), Failure> {
    let mut all = Contexts::load()?;
    if all.contexts.remove(name).is_none() {
        return Err(all.unknown(name));
    }
    if all.current.as_deref() == Some(name) {
        all.current = None;
        note(&format!("it was in use; commands now connect to {DEFAULT_URL}"));
    }
    all.save()?;
    note(&format!("context `{name}` removed"));
    Ok(())
}

fn list(output: Output) -> Result<(), Failure> {
    let all = Contexts::load()?;
    let current = all.current.as_deref().unwrap_or(DEFAULT);
    let usual = Context::built_in();
    let rows = std::iter::once((DEFAULT, &usual))
        .chain(all.contexts.iter().map(|(name, context)| (name.as_str(), context)));
    let out = Out::new();
    let form = match output {
        Output::Table => {
            let mut table = Table::new(&["NAME", "URL", "TOKEN", "IN USE"], 4, out.colours);
            for (name, context) in rows {
                let word = |is: bool| if is { "yes" } else { "-" };
                let words =
                    [name, &context.url, word(context.has_credential()), word(name == current)];
                table.row(words.map(|word| Cell::Text(word.to_owned())).into());
            }
            return out.print(&table.text(&out).0);
        }
        Output::Json => Form::Json,
        Output::Ndjson => Form::Ndjson,
    };
    let mut writer = Writer::new(out, form);
    for (name, context) in rows {
        if writer.object(&context_json(name, context, name == current))?
            == WriteOutcome::OutputClosed
        {
            return Ok(());
        }
    }
    writer.end()
}

fn show(flags: &ShowFlags) -> Result<(), Failure> {
    let all = Contexts::load()?;
    let current = all.current.as_deref().unwrap_or(DEFAULT);
    let name = flags.name.as_deref().unwrap_or(current);
    let context = all.named(name)?;
    let out = Out::new();
    if flags.output != Output::Table {
        return out.print(&format!("{}\n", context_json(name, &context, name == current)));
    }
    let token = match (&context.connection_string, &context.token) {
        (Some(_), _) => "signed with a connection string, not shown",
        (None, Some(_)) => "set, not shown",
        (None, None) => "-",
    };
    let ca = context.ca.as_ref().map_or("-".to_owned(), |file| file.display().to_string());
    let is_used = if name == current { "yes" } else { "no" };
    out.print(&format!(
        "name    {name}\nurl     {}\ntoken   {token}\nca      {ca}\nin use  {is_used}\n",
        context.url
    ))
}

/// JSON form of a context without its secrets.
fn context_json(name: &str, context: &Context, is_used: bool) -> String {
    json!({
        "name": name,
        "url": context.url,
        "hasToken": context.has_credential(),
        "ca": context.ca,
        "inUse": is_used,
    })
    .to_string()
}
