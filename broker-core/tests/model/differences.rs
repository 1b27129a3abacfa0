//! Shortens a difference to the necessary steps.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use peeklock_core::description::QueueDescription;

use crate::generator::Profile;
use crate::operation::Step;

/// Removes steps and requests while the same kind of difference remains.
pub fn describe_steps(
    seed: u64,
    profile: &Profile,
    mut steps: Vec<Step>,
    mut difference: String,
    replay: impl Fn(&[Step]) -> Option<String>,
) -> String {
    let all = steps.len();
    let kind = |text: &str| text.lines().next().unwrap_or_default().to_owned();
    let wanted = kind(&difference);
    let replay = |steps: &[Step]| replay(steps).filter(|text| kind(text) == wanted);
    quiet(|| {
        let mut is_shorter = true;
        while is_shorter {
            is_shorter = false;
            let mut index = 0;
            while index < steps.len() {
                let mut fewer = steps.clone();
                fewer.remove(index);
                if let Some(text) = replay(&fewer) {
                    (steps, difference, is_shorter) = (fewer, text, true);
                    continue;
                }
                // A wait without an effect is merged into the next one.
                if let Some(fewer) = merged(&steps, index)
                    && let Some(text) = replay(&fewer)
                {
                    (steps, difference, is_shorter) = (fewer, text, true);
                    continue;
                }
                if let Step::List(span, requests) = &steps[index] {
                    for left_out in 0..requests.len() {
                        let mut less = requests.clone();
                        less.remove(left_out);
                        let mut fewer = steps.clone();
                        fewer[index] = Step::List(*span, less);
                        if let Some(text) = replay(&fewer) {
                            (steps, difference, is_shorter) = (fewer, text, true);
                            break;
                        }
                    }
                }
                index += 1;
            }
        }
    });
    let mut text = format!("seed {seed}: {difference}\n\n{}\n", brief(&profile.description));
    text.push_str(&format!("release_on_detach {}\n", profile.release_on_detach));
    let on_loss = profile.release_on_connection_loss;
    text.push_str(&format!("release_on_connection_loss {on_loss}\n"));
    text.push_str(&format!("\n{} of {all} steps are enough:\n", steps.len()));
    for step in steps {
        text.push_str(&format!("  {step:?}\n"));
    }
    text
}

/// The steps with an empty wait merged into the next step.
fn merged(steps: &[Step], index: usize) -> Option<Vec<Step>> {
    let span = match &steps[index] {
        Step::Wait(span) => *span,
        Step::List(span, requests) if requests.is_empty() => *span,
        _ => return None,
    };
    let mut fewer = steps.to_vec();
    fewer.remove(index);
    match fewer.get_mut(index)? {
        Step::Wait(next) | Step::List(next, _) => *next = next.plus(span),
        Step::Late(..) | Step::Full(_) | Step::Crash(_) => return None,
    }
    Some(fewer)
}

/// Runs a step; a panic counts as a difference.
pub fn caught(run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    install_hook();
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|payload| {
        let text = payload
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| payload.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_default();
        let kind: String = text.chars().take(40).collect();
        Err(format!("panic: {kind}\n{text}"))
    })
}

/// Properties of a description that the generator varies.
pub fn brief(description: &QueueDescription) -> String {
    format!(
        "LockDuration {} MaxDeliveryCount {} DefaultMessageTimeToLive {} \
         DeadLetteringOnMessageExpiration {}\nRequiresDuplicateDetection {} window {} \
         AutoDeleteOnIdle {} MaxSizeInMegabytes {} Status {} RetryPolicy {:?}",
        description.lock_duration,
        description.max_delivery_count,
        description.default_message_time_to_live,
        description.dead_lettering_on_message_expiration,
        description.requires_duplicate_detection,
        description.duplicate_detection_history_time_window,
        description.auto_delete_on_idle,
        description.max_size_in_megabytes,
        description.status,
        description.retry_policy,
    )
}

thread_local! {
    static IS_QUIET: Cell<bool> = const { Cell::new(false) };
}

/// Runs code whose panics are expected.
fn quiet(run: impl FnOnce()) {
    IS_QUIET.set(true);
    run();
    IS_QUIET.set(false);
}

fn install_hook() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !IS_QUIET.get() {
                usual(info);
            }
        }));
    });
}
