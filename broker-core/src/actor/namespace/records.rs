//! The namespace's own records: the counter of ids, the key of hashes, and which entities there are.

use std::collections::HashMap;

use crate::ids::EntityId;
use crate::path::PathKey;
use crate::store::{Key, Store, StoreError};

pub(super) const NAMESPACE_SPACE: u64 = 0;
pub(super) const TABLE_IDS: u8 = 0x01;
pub(super) const TABLE_SECRETS: u8 = 0x02;
const TABLE_ENTITIES: u8 = 0x10;

/// What is known of a namespace before its entities are opened.
pub(crate) struct Loaded {
    pub(crate) duplicate_key: [u8; 16],
    pub(super) id_limit: u64,
    pub(super) entities: Vec<(EntityId, Box<str>)>,
}

/// Reads the namespace's own records; makes the first ones in an empty store.
pub(crate) fn load(store: &dyn Store, fresh_key: [u8; 16]) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded { duplicate_key: fresh_key, id_limit: 1, entities: Vec::new() };
    let mut damaged = false;
    let prefix = Key::of_space(NAMESPACE_SPACE);
    store.scan(prefix.as_bytes(), &mut |key, value| {
        let rest = key.get(crate::store::SPACE_BYTES..).unwrap_or_default();
        match rest.split_first() {
            Some((&TABLE_IDS, _)) => match value.try_into() {
                Ok(bytes) => loaded.id_limit = u64::from_be_bytes(bytes),
                Err(_) => damaged = true,
            },
            Some((&TABLE_SECRETS, _)) => match value.try_into() {
                Ok(bytes) => loaded.duplicate_key = bytes,
                Err(_) => damaged = true,
            },
            Some((&TABLE_ENTITIES, id)) => match (id.try_into(), std::str::from_utf8(value)) {
                (Ok(id), Ok(path)) => {
                    loaded.entities.push((EntityId(u64::from_be_bytes(id)), path.into()));
                }
                _ => damaged = true,
            },
            Some(_) | None => damaged = true,
        }
    })?;
    if damaged {
        return Err(StoreError::Damaged("a record of the namespace cannot be read".into()));
    }
    let mut paths = HashMap::new();
    for (id, path) in &loaded.entities {
        if let Some(other) = paths.insert(PathKey::fold(path), *id) {
            let what = format!("entities {other} and {id} have one path, `{path}`");
            return Err(StoreError::Damaged(what.into()));
        }
        // No id that any record names is given again, whatever became of the counter.
        loaded.id_limit = loaded.id_limit.max(id.0 + 1);
    }
    Ok(loaded)
}

/// Where the path of an entity lies.
pub(super) fn entity_key(id: EntityId) -> Key {
    Key::of_space(NAMESPACE_SPACE).then(&[TABLE_ENTITIES]).then(&id.0.to_be_bytes())
}
