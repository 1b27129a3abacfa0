//! The client for browsers, embedded so that any server of a page can deliver it: ES modules that
//! import each other by name. The entry is `peeklock.js`; see `js/README.md`.

/// Names and contents of all modules of the client.
pub const MODULES: [(&str, &str); 20] = [
    ("peeklock.js", include_str!("../js/peeklock.js")),
    ("connection.js", include_str!("../js/connection.js")),
    ("credential.js", include_str!("../js/credential.js")),
    ("declarations.js", include_str!("../js/declarations.js")),
    ("error.js", include_str!("../js/error.js")),
    ("frames.js", include_str!("../js/frames.js")),
    ("holders.js", include_str!("../js/holders.js")),
    ("inspection.js", include_str!("../js/inspection.js")),
    ("json.js", include_str!("../js/json.js")),
    ("link.js", include_str!("../js/link.js")),
    ("message.js", include_str!("../js/message.js")),
    ("queues.js", include_str!("../js/queues.js")),
    ("receiver.js", include_str!("../js/receiver.js")),
    ("requests.js", include_str!("../js/requests.js")),
    ("sender.js", include_str!("../js/sender.js")),
    ("session.js", include_str!("../js/session.js")),
    ("sockets.js", include_str!("../js/sockets.js")),
    ("topics.js", include_str!("../js/topics.js")),
    ("transaction.js", include_str!("../js/transaction.js")),
    ("value.js", include_str!("../js/value.js")),
];

#[cfg(test)]
mod tests {
    use super::MODULES;

    #[test]
    fn every_module_is_there() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/js");
        let mut there: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with(".js"))
            .collect();
        let mut named = MODULES.map(|(name, _)| name.to_owned());
        there.sort();
        named.sort();
        assert_eq!(there, named);
    }
}
