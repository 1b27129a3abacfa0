//! Screen of the terminal while a command uses it. It is restored however the command ends.
//! `top.rs` uses it.

use std::io::{self, Write as _};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::event::{Event, EventStream, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{
    Clear, ClearType, DisableLineWrap, EnableLineWrap, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode, size,
};
use crossterm::{execute, queue};
use futures_util::StreamExt as _;

/// Default size if the terminal reports none.
const USUAL: (u16, u16) = (80, 24);

/// Alternate screen without cursor and echo.
pub struct Screen {
    events: EventStream,
}

/// Action of the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    Leave,
    Sort,
    Turn,
    /// The size has changed.
    Redraw,
}

impl Screen {
    pub fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        // From here on, dropping `screen` restores the terminal.
        let screen = Self { events: EventStream::new() };
        execute!(io::stdout(), EnterAlternateScreen, Hide, DisableLineWrap)?;
        Ok(screen)
    }

    /// Columns and lines.
    pub fn size(&self) -> (u16, u16) {
        size().ok().filter(|(columns, lines)| *columns > 0 && *lines > 0).unwrap_or(USUAL)
    }

    /// Draws over the previous content without clearing it first, to avoid flicker.
    pub fn show(&mut self, lines: &[String]) -> io::Result<()> {
        let (_, room) = self.size();
        let mut out = io::stdout().lock();
        for (row, line) in (0..room).zip(lines) {
            queue!(out, MoveTo(0, row))?;
            write!(out, "{line}")?;
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown))?;
        out.flush()
    }

    /// Returns the next key with a meaning. Dropping the future loses none.
    pub async fn key(&mut self) -> Key {
        loop {
            match self.events.next().await {
                Some(Ok(Event::Key(key))) => {
                    if let Some(key) = meaning(key) {
                        return key;
                    }
                }
                Some(Ok(Event::Resize(..))) => return Key::Redraw,
                Some(Ok(_)) => {}
                // The terminal was closed.
                Some(Err(_)) | None => return Key::Leave,
            }
        }
    }
}

fn meaning(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c' | 'd') if is_control => Some(Key::Leave),
        KeyCode::Char('l') if is_control => Some(Key::Redraw),
        KeyCode::Char('q' | 'Q') | KeyCode::Esc => Some(Key::Leave),
        KeyCode::Char('s' | 'S') => Some(Key::Sort),
        KeyCode::Char('r' | 'R') => Some(Key::Turn),
        _ => None,
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // If the terminal was closed, it cannot be restored.
        let _left = execute!(io::stdout(), EnableLineWrap, Show, LeaveAlternateScreen);
        let _cooked = disable_raw_mode();
    }
}
