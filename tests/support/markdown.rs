//! Fenced blocks of a Markdown page.

/// A fenced block.
#[derive(Debug)]
pub struct Block {
    /// Line of the opening fence, from 1.
    #[allow(dead_code, reason = "not every test reports it")]
    pub line: usize,
    /// Words after the fence, the language first.
    pub info: Vec<String>,
    /// Text between the fences, without the indentation of the opening one.
    pub text: String,
}

impl Block {
    /// Language, empty for a fence without one.
    pub fn language(&self) -> &str {
        self.info.first().map_or("", String::as_str)
    }
}

/// Returns the fenced blocks of a page in their order.
pub fn blocks(page: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let bare = line.trim_start();
        let Some(info) = bare.strip_prefix("```") else { continue };
        let indentation = line.len() - bare.len();
        let mut text = String::new();
        for (_, line) in lines.by_ref() {
            if line.trim() == "```" {
                break;
            }
            text.push_str(line.get(indentation..).unwrap_or_default());
            text.push('\n');
        }
        let words = info.split([' ', ',']).filter(|word| !word.is_empty());
        let info = words.map(str::to_owned).collect();
        found.push(Block { line: at + 1, info, text });
    }
    found
}
