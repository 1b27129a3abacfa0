//! Mutated tokens, audiences and connection strings: random text, and valid text with changes. The
//! mutations are the same in every run.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::sync::Arc;

use peeklock_auth_sas::{
    Audience, ConnectionString, SasAuthorizer, SasConfig, Token, TokenError, sign,
};
use peeklock_core::Broker;
use peeklock_core::contract::{Action, Authorizer, Principal, Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate};
use peeklock_core::time::Timestamp;

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// Pieces of valid text and similar text that must not be accepted in its place.
const PIECES: [&str; 28] = [
    "SharedAccessSignature",
    "Bearer ",
    "sr=",
    "sig=",
    "se=",
    "skn=",
    "&",
    "&&",
    "=",
    "%",
    "%2",
    "%ff",
    "%00",
    " ",
    ";",
    "sb://",
    "://",
    "/",
    "\\",
    "Endpoint=",
    "SharedAccessKey=",
    "EntityPath=",
    ":5671",
    "-1",
    "99999999999999999999",
    "\u{0}",
    "é\u{1f600}",
    "eyJ.a.b",
];

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % end.max(1) as u64).unwrap()
    }

    fn text(&mut self) -> String {
        (0..self.below(24)).map(|_| PIECES[self.below(PIECES.len())]).collect()
    }

    /// Returns the text with a few pieces added, removed or replaced.
    fn mutate(&mut self, text: &str) -> String {
        let mut mutated = text.to_owned();
        for _ in 0..=self.below(3) {
            let places: Vec<usize> =
                mutated.char_indices().map(|(at, _)| at).chain([mutated.len()]).collect();
            let (one, two) = (places[self.below(places.len())], places[self.below(places.len())]);
            let (from, to) = (one.min(two), one.max(two));
            match self.below(4) {
                0 => mutated.insert_str(from, PIECES[self.below(PIECES.len())]),
                1 => mutated.replace_range(from..to, ""),
                2 => mutated.replace_range(from..to, PIECES[self.below(PIECES.len())]),
                _ => {
                    let part = mutated[from..to].to_owned();
                    mutated.insert_str(from, &part);
                }
            }
        }
        mutated
    }
}

/// SEC-10, SEC-14, SEC-22: any text is parsed as a token or refused with a known cause, and the
/// refusal repeats no secret. Only the signed text gives access.
#[tokio::test]
async fn mutated_signed_tokens_are_refused() {
    let policies = Policies::new();
    let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::closed()));
    let broker = Broker::builder()
        .arbiters(1)
        .policies(&policies)
        .authorizer(Arc::clone(&authorizer) as Arc<dyn Authorizer>)
        .start()
        .await
        .unwrap();
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let properties = PolicyUpdate {
        rights: Some(Rights::of(Right::Send)),
        primary_key: KeyText::parse(KEY).ok(),
        ..PolicyUpdate::default()
    };
    broker.create_policy("orders", "shop", properties).await.unwrap();
    let good = sign("shop", KEY, "sb://bus/orders", Timestamp::from_unix_ms(4_000_000_000_000));
    let signature = good.split_once("sig=").map(|(_, signature)| &signature[..12]).unwrap();
    let fields = |text: &str| {
        let text = text.trim().to_ascii_lowercase();
        let fields = text.split_once(' ').map_or("", |(_, fields)| fields.trim()).to_owned();
        // The signature's padding may be omitted.
        let plain = |field: &str| match field.strip_prefix("sig=") {
            Some(signature) => {
                format!("sig={}", signature.replace("%3d", "").trim_end_matches('='))
            }
            None => field.to_owned(),
        };
        let mut fields: Vec<String> = fields.split('&').map(plain).collect();
        fields
            .retain(|field| ["sr=", "se=", "sig=", "skn="].iter().any(|it| field.starts_with(it)));
        fields.sort();
        fields
    };
    let mut random = Random(0x7061_7274_7365_6564);
    let (mut let_in, mut causes) = (0, std::collections::BTreeSet::new());
    for number in 0..20_000 {
        let text = if number % 4 == 0 { random.text() } else { random.mutate(&good) };
        match Token::parse(&text) {
            Ok(token) => {
                // Reading the audience must not panic.
                let audience = Audience::parse(&token.resource(), &[]);
                let _looked = (audience.covers("orders"), audience.is_below(""));
                let is_signed = token.resource().contains(signature);
                assert!(is_signed || !format!("{token:?}").contains(signature), "{text}");
            }
            Err(TokenError::Malformed(_) | TokenError::Bearer) => {}
            Err(other) => panic!("{other:?} of {text}"),
        }
        // A principal without a peer address is not delayed.
        let access = broker.access(Principal::anonymous().with_token(&*text));
        match access.allow(Action::Send, "orders").await {
            Ok(_) => {
                let_in += 1;
                assert_eq!(fields(&text), fields(&good), "{text}");
            }
            Err(error) => {
                causes.extend(error.rejection().denial().map(|denial| denial.cause));
                let signature = good.split("sig=").nth(1).unwrap().split('&').next().unwrap();
                assert!(!error.to_string().contains(signature), "{error}");
            }
        }
    }
    assert!(let_in > 0, "a field that nobody knows changes nothing");
    for cause in ["malformed", "bearer", "signature"] {
        assert!(causes.contains(cause), "{cause}: {causes:?}");
    }
    broker.stop(std::time::Duration::ZERO).await.unwrap();
}

/// SEC-18, SEC-19, SEC-22: any text is either refused as a connection string without repeating it,
/// or parsed into one that is written in the same way.
#[test]
fn any_text_may_be_read_as_a_connection_string() {
    let good = format!(
        "Endpoint=sb://[::1]:5671/;SharedAccessKeyName=shop;SharedAccessKey={KEY};EntityPath=eu/orders;\
         UseDevelopmentEmulator=true"
    );
    let mut random = Random(0x636f_6e6e_6563_7421);
    let mut read = 0;
    for number in 0..40_000 {
        let text = if number % 4 == 0 { random.text() } else { random.mutate(&good) };
        match ConnectionString::parse(&text) {
            Ok(string) => {
                read += 1;
                assert_eq!(ConnectionString::parse(&string.reveal()), Ok(string.clone()), "{text}");
                // A mutation may turn the key into a name.
                let is_key = text.contains(&format!(";SharedAccessKey={KEY}"));
                let is_only = is_key && text.matches(KEY).count() == 1;
                assert!(!is_only || !format!("{string:?}").contains(KEY), "{text}");
                let _signed = string.token(Timestamp::NEVER);
                string.check_entity("eu/orders").ok();
            }
            Err(refused) => {
                assert!(!refused.detail().contains(&KEY[..20]), "{text}: {}", refused.detail());
                assert!(refused.detail().len() < 1_000, "{text}: {}", refused.detail());
            }
        }
    }
    assert!(read > 1_000, "{read}");
    for piece in PIECES.iter().chain([&good.as_str()]) {
        let long = piece.repeat((16 << 10) / piece.len() + 2);
        assert!(ConnectionString::parse(&long).is_err());
        assert!(Token::parse(&format!("SharedAccessSignature {long}")).is_err());
        let _looked = Audience::parse(&long, &[]).covers("orders");
    }
}
