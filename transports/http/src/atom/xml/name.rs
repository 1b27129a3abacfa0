//! What may be a name in XML, and a character. The reader takes any text between the marks for a name, and any
//! character for one; what is kept of a document is written again, and would break the document that it is written
//! into.

/// The namespace of `xml:lang` and `xml:space`, which has its prefix everywhere and can have no other.
pub(super) const XML: &str = "http://www.w3.org/XML/1998/namespace";
/// The namespace of declarations of namespaces, which nothing else is in.
pub(super) const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

/// Whether a text is a name with one prefix at most (`QName` of Namespaces in XML 1.0, 4).
pub(super) fn is_qualified(text: &str) -> bool {
    match text.split_once(':') {
        Some((prefix, local)) => is_name(prefix) && is_name(local),
        None => is_name(text),
    }
}

/// Whether a text is a name without a colon in it (`NCName`; XML 1.0, 2.3).
fn is_name(text: &str) -> bool {
    let mut characters = text.chars();
    characters.next().is_some_and(is_first) && characters.all(is_further)
}

/// Whether XML 1.0 has the character (2.2, `Char`).
pub(super) const fn is_character(character: char) -> bool {
    !matches!(character,
        '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

const fn is_first(character: char) -> bool {
    matches!(character,
        'A'..='Z' | '_' | 'a'..='z'
        | '\u{c0}'..='\u{d6}' | '\u{d8}'..='\u{f6}' | '\u{f8}'..='\u{2ff}'
        | '\u{370}'..='\u{37d}' | '\u{37f}'..='\u{1fff}' | '\u{200c}'..='\u{200d}'
        | '\u{2070}'..='\u{218f}' | '\u{2c00}'..='\u{2fef}' | '\u{3001}'..='\u{d7ff}'
        | '\u{f900}'..='\u{fdcf}' | '\u{fdf0}'..='\u{fffd}' | '\u{10000}'..='\u{effff}')
}

const fn is_further(character: char) -> bool {
    is_first(character)
        || matches!(character,
            '-' | '.' | '0'..='9' | '\u{b7}' | '\u{300}'..='\u{36f}' | '\u{203f}'..='\u{2040}')
}
