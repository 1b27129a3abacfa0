//! The signature of a token, over its resource and its expiry (SEC-11). The authorizer and clients
//! share it. The comparison takes constant time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use peeklock_core::time::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use sha2::Sha256;

/// First word of a token.
pub const SCHEME: &str = "SharedAccessSignature";
/// 9999-12-31T23:59:59Z, the latest expiry; a token with a later one never expires.
pub const LATEST_SECONDS: i64 = 253_402_300_799;
/// Characters that stand for themselves in a value of a token.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Signs a token with the key of a policy: for a resource, such as `sb://localhost/orders`, until an instant.
#[must_use]
pub fn sign(policy: &str, key: &str, resource: &str, until: Timestamp) -> String {
    let resource = utf8_percent_encode(resource, VALUE).to_string();
    let expiry = until.unix_ms().div_euclid(1_000).clamp(0, LATEST_SECONDS).to_string();
    let signature = mac(key, &resource, &expiry).map(|mac| mac.finalize().into_bytes());
    let signature = STANDARD.encode(signature.unwrap_or_default());
    let (signature, policy) =
        (utf8_percent_encode(&signature, VALUE), utf8_percent_encode(policy, VALUE));
    format!("{SCHEME} sr={resource}&sig={signature}&se={expiry}&skn={policy}")
}

/// Whether `signature` was made with this key, over a resource and an expiry as they stand in the token. Takes the same
/// time for every key (SEC-14).
#[must_use]
pub fn is_signed_with(key: &str, resource: &str, expiry: &str, signature: &[u8]) -> bool {
    mac(key, resource, expiry).is_some_and(|mac| mac.verify_slice(signature).is_ok())
}

/// The bytes of the key's text, over the resource as it stands in the token, a line feed, and the expiry.
fn mac(key: &str, resource: &str, expiry: &str) -> Option<Hmac<Sha256>> {
    // A key of any length is taken.
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).ok()?;
    mac.update(resource.as_bytes());
    mac.update(b"\n");
    mac.update(expiry.as_bytes());
    Some(mac)
}
