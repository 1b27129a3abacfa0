//! Tests of addresses, and of the validation of names.

use super::*;
use crate::condition::Condition;

fn limits() -> Limits {
    Limits::default()
}

fn check(address: &str, entity: &str, sub_queue: SubQueue, node: &Node) {
    let parsed = EntityAddress::parse(address).unwrap();
    assert_eq!(parsed.entity.to_string(), entity, "{address}");
    assert_eq!(parsed.sub_queue, sub_queue, "{address}");
    assert_eq!(&parsed.node, node, "{address}");
    assert_eq!(EntityAddress::parse(&parsed.to_string()).unwrap(), parsed, "{address}");
}

fn check_nowhere(address: &str) {
    let rejection = EntityAddress::parse(address).unwrap_err();
    assert_eq!(rejection.condition(), Condition::EntityNotFound, "{address}");
}

/// ADR-01
#[test]
fn queues_topics_subscriptions_and_rules_have_these_addresses() {
    check("orders", "orders", SubQueue::Main, &Node::Entity);
    check("eu/orders", "eu/orders", SubQueue::Main, &Node::Entity);
    check("a/rules/b", "a/rules/b", SubQueue::Main, &Node::Entity);
    let subscription = "eu/events/Subscriptions/audit";
    check(subscription, subscription, SubQueue::Main, &Node::Entity);
    let rule = Node::Rule("$Default".into());
    check("t/Subscriptions/s/Rules/$Default", "t/Subscriptions/s", SubQueue::Main, &rule);
    let parsed = EntityAddress::parse(subscription).unwrap();
    assert_eq!(parsed.entity.root(), "eu/events");
    let expected = EntityName::Subscription { topic: "eu/events".into(), name: "audit".into() };
    assert_eq!(parsed.entity, expected);
}

/// ADR-02, ADR-04
#[test]
fn the_sub_queues_of_queues_topics_and_subscriptions_have_these_addresses() {
    check("q/$deadletterqueue", "q", SubQueue::DeadLetter, &Node::Entity);
    check("q/$Transfer/$deadletterqueue", "q", SubQueue::TransferDeadLetter, &Node::Entity);
    let subscription = "t/Subscriptions/s";
    check("t/Subscriptions/s/$deadletterqueue", subscription, SubQueue::DeadLetter, &Node::Entity);
    check(
        "t/Subscriptions/s/$Transfer/$deadletterqueue",
        subscription,
        SubQueue::TransferDeadLetter,
        &Node::Entity,
    );
}

/// ADR-03
#[test]
fn the_helpers_format_addresses_of_the_sub_queues() {
    assert_eq!(dead_letter_path("q"), "q/$DeadLetterQueue");
    assert_eq!(dead_letter_path("t/Subscriptions/s"), "t/Subscriptions/s/$DeadLetterQueue");
    assert_eq!(transfer_dead_letter_path("q"), "q/$Transfer/$deadletterqueue");
    check(&dead_letter_path("q"), "q", SubQueue::DeadLetter, &Node::Entity);
    check(&transfer_dead_letter_path("q"), "q", SubQueue::TransferDeadLetter, &Node::Entity);
}

/// ADR-06
#[test]
fn case_is_ignored_in_every_segment_and_kept_for_display() {
    check(
        "T/sUBSCRIPTIONS/S/$DEADLETTERQUEUE",
        "T/Subscriptions/S",
        SubQueue::DeadLetter,
        &Node::Entity,
    );
    check("Q/$transfer/$DeadLetterQueue", "Q", SubQueue::TransferDeadLetter, &Node::Entity);
    check(
        "t/subscriptions/s/rules/R",
        "t/Subscriptions/s",
        SubQueue::Main,
        &Node::Rule("R".into()),
    );
    check("Q/$MANAGEMENT", "Q", SubQueue::Main, &Node::Management);

    let upper = EntityAddress::parse("T/SUBSCRIPTIONS/S").unwrap();
    let lower = EntityAddress::parse("t/subscriptions/s").unwrap();
    assert_eq!(upper.entity, lower.entity);
    assert_eq!(upper.key(), lower.key());
    assert_eq!(upper.key().as_str(), "t/subscriptions/s");
    assert_ne!(upper.entity.to_string(), lower.entity.to_string());
}

#[test]
fn names_of_different_entities_differ() {
    let parse = |text| EntityAddress::parse(text).unwrap().entity;
    assert_ne!(parse("a"), parse("b"));
    assert_ne!(parse("t/Subscriptions/s"), parse("t/Subscriptions/r"));
    assert_ne!(parse("t/Subscriptions/s"), parse("u/Subscriptions/s"));
    assert_ne!(parse("t"), parse("t/Subscriptions/s"));
    assert!(parse("B").key() > parse("a").key());
}

/// ADR-09
#[test]
fn a_backslash_is_a_slash() {
    check("eu\\orders", "eu/orders", SubQueue::Main, &Node::Entity);
    check(
        "t\\Subscriptions\\s\\$deadletterqueue",
        "t/Subscriptions/s",
        SubQueue::DeadLetter,
        &Node::Entity,
    );
    assert_eq!(validate_entity_path("eu\\orders", &limits()).unwrap().to_string(), "eu/orders");
}

/// ADR-13: the namespace has a node for tokens, and no entity can have its name.
#[test]
fn the_namespace_has_a_node_for_tokens() {
    for text in ["$cbs", "$CBS", "/$cbs/", "sb://host/$cbs", "amqps://host:5671/$cbs"] {
        assert_eq!(Address::parse(text), Ok(Address::Tokens), "{text}");
        assert!(EntityAddress::parse(text).is_err(), "{text}");
    }
    for text in ["$cbs/q", "cbs", "a/$cbs", "$cbs/$management"] {
        assert_ne!(Address::parse(text), Ok(Address::Tokens), "{text}");
    }
    let node = EntityAddress::parse("q/$management").unwrap();
    assert_eq!(Address::parse("q/$management"), Ok(Address::Entity(node)));
    for name in ["$cbs", "$management", "q/$management", "a/$cbs"] {
        assert!(validate_entity_path(name, &limits()).is_err(), "{name}");
    }
}

/// ADR-13
#[test]
fn every_entity_and_sub_queue_has_a_management_node() {
    check("q/$management", "q", SubQueue::Main, &Node::Management);
    check("t/Subscriptions/s/$management", "t/Subscriptions/s", SubQueue::Main, &Node::Management);
    check("q/$deadletterqueue/$management", "q", SubQueue::DeadLetter, &Node::Management);
}

/// ADR-15
#[test]
fn only_the_path_of_an_absolute_address_counts() {
    for scheme in ["sb", "amqp", "amqps", "http", "https", "SB"] {
        check(&format!("{scheme}://host:5672/eu/q"), "eu/q", SubQueue::Main, &Node::Entity);
    }
    check("sb://host/q/", "q", SubQueue::Main, &Node::Entity);
    check("sb://host/q/$deadletterqueue?x=/y#z", "q", SubQueue::DeadLetter, &Node::Entity);
    check("https://host/q?x=/y", "q", SubQueue::Main, &Node::Entity);
    check("/q", "q", SubQueue::Main, &Node::Entity);
    let created = validate_entity_path("sb://host/eu/q", &limits()).unwrap();
    assert_eq!(created.to_string(), "eu/q");
}

#[test]
fn impossible_entity_paths_are_not_found() {
    for address in [
        "",
        "/",
        "//",
        "//q",
        "a//b",
        "$management",
        "$cbs",
        "$deadletterqueue",
        "$Transfer/$deadletterqueue",
        "q/$Transfer",
        "q/$unknown",
        "q/$deadletterqueue/$deadletterqueue",
        "q/$deadletterqueue/x",
        "Subscriptions",
        "Subscriptions/s",
        "t/Subscriptions",
        "t/Subscriptions/",
        "t/Subscriptions//",
        "t/Subscriptions/s/x",
        "t/Subscriptions/s/Rules",
        "t/Subscriptions/s/Rules/",
        "t/Subscriptions/s/Rules/r/$deadletterqueue",
        "t/Subscriptions/s/Rules/$management",
        "t/Subscriptions/s/Subscriptions/s",
        "t/Subscriptions/$x",
        "sb://host",
        "sb://host?x=/q",
        "sb:///",
        "ftp://host/q",
    ] {
        check_nowhere(address);
    }
}

/// ADR-07, QUO-01
#[test]
fn lengths_are_checked_at_the_limit_and_one_above() {
    let fits = |result: Result<(), Rejection>| match result {
        Ok(()) => true,
        Err(rejection) => {
            assert_eq!(rejection.condition(), Condition::ArgumentOutOfRange, "{rejection}");
            false
        }
    };
    for (length, path_fits, name_fits) in [
        (0, false, false),
        (1, true, true),
        (50, true, true),
        (51, true, false),
        (260, true, false),
        (261, false, false),
    ] {
        let text = "x".repeat(length);
        assert_eq!(fits(validate_entity_path(&text, &limits()).map(drop)), path_fits, "{length}");
        assert_eq!(fits(validate_subscription_name(&text, &limits())), name_fits, "{length}");
        assert_eq!(fits(validate_rule_name(&text, &limits())), name_fits, "{length}");
    }
}

fn check_malformed(result: Result<(), Rejection>, text: &str) {
    assert_eq!(result.unwrap_err().condition(), Condition::ArgumentError, "{text}");
}

/// ADR-08
#[test]
fn separators_stand_only_between_segments_of_a_path() {
    assert!(validate_entity_path("a/b/c", &limits()).is_ok());
    for path in ["/a", "a/", "\\a", "a\\", "/"] {
        check_malformed(validate_entity_path(path, &limits()).map(drop), path);
    }
    for name in ["a/b", "a\\b"] {
        check_malformed(validate_subscription_name(name, &limits()), name);
        check_malformed(validate_rule_name(name, &limits()), name);
    }
}

/// ADR-10
#[test]
fn names_have_letters_digits_dots_hyphens_and_underscores() {
    assert!(validate_entity_path("Az09.-_/x", &limits()).is_ok());
    assert!(validate_subscription_name("Az09.-_", &limits()).is_ok());
    assert!(validate_rule_name("Az09.-_", &limits()).is_ok());
    for character in ['@', '?', '#', '*', ' ', '%', '\0', 'é', ':', '$'] {
        let name = format!("a{character}b");
        check_malformed(validate_entity_path(&name, &limits()).map(drop), &name);
        check_malformed(validate_subscription_name(&name, &limits()), &name);
        check_malformed(validate_rule_name(&name, &limits()), &name);
    }
}

/// ADR-16: clients resolve these segments before they send a request.
#[test]
fn dot_segments_in_names_are_refused() {
    for path in [".", "..", "a/../b", "a/.", "./a"] {
        check_malformed(validate_entity_path(path, &limits()).map(drop), path);
    }
    for name in [".", ".."] {
        check_malformed(validate_subscription_name(name, &limits()), name);
        check_malformed(validate_rule_name(name, &limits()), name);
    }
    for name in ["...", "a.", ".a", "..a"] {
        assert!(validate_entity_path(name, &limits()).is_ok(), "{name}");
    }
}

/// ADR-11
#[test]
fn names_of_the_system_are_kept_free() {
    for path in ["$x", "a/$x", "subscriptions", "a/SUBSCRIPTIONS/b", "a//b", "$Default"] {
        check_malformed(validate_entity_path(path, &limits()).map(drop), path);
    }
    check_malformed(validate_subscription_name("$Default", &limits()), "$Default");
    check_malformed(validate_rule_name("$x", &limits()), "$x");
    assert!(validate_rule_name("$Default", &limits()).is_ok());
    assert!(validate_rule_name("$default", &limits()).is_ok());
}

#[test]
fn every_valid_path_can_be_addressed() {
    for path in ["a", "rules", "a/rules/b", "transfer/deadletterqueue", "management"] {
        let created = validate_entity_path(path, &limits()).unwrap();
        assert_eq!(EntityAddress::parse(path).unwrap(), EntityAddress::of(created));
    }
    let odd = EntityAddress::parse("t/Subscriptions/Subscriptions/Rules/Rules").unwrap();
    assert_eq!(odd.entity.to_string(), "t/Subscriptions/Subscriptions");
    assert_eq!(odd.node, Node::Rule("Rules".into()));
}

#[test]
fn a_key_is_found_by_its_folded_text() {
    let key = EntityAddress::parse("Orders").unwrap().key();
    let map = std::collections::BTreeMap::from([(key.clone(), 1)]);
    assert_eq!(map.get("orders"), Some(&1));
    assert_eq!(key.to_string(), "orders");
}
