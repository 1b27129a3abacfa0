//! Frames of questions and commands of operators.

use super::*;
use crate::operation::FindingsView;

/// Like `golden.txt`, for questions, findings and commands of operators.
const GOLDEN: &str = include_str!("../golden_inspect.txt");

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

/// Returns one question and one command of each kind.
pub(super) fn operations() -> Vec<Operation> {
    let questions = [
        r#"{"heads":{"states":["locked","active"],"descending":true,"from":7,"count":10}}"#,
        r#"{"locks":{"sort":"age"}}"#,
        r#"{"sessions":{"sort":"oldestEnqueuedAtUtc","withActiveMessages":true,"top":5}}"#,
        r#"{"sessionState":{"sessionId":"table-7","from":0}}"#,
        r#"{"timeline":{"of":"expiring","slotSeconds":600,"slots":24}}"#,
        r#"{"body":{"sequenceNumber":7,"from":1048576,"length":1048576}}"#,
        r#"{"entities":{"kind":"queue","conditions":["hasDeadLetters"],"sort":"path"}}"#,
        r#"{"clients":{"transport":"amqp"}}"#,
        r#"{"tap":{"tap":3}}"#,
    ];
    let jobs = [
        r#"{"jobs":{"list":{"top":5}}}"#,
        r#"{"jobs":{"one":{"job":"00000000-0000-0000-0000-000000000b0b"}}}"#,
        r#"{"topology":{"around":"orders","hops":2,"top":100}}"#,
        r#"{"checks":{"kind":"deadLettersUnread","muted":false}}"#,
    ];
    let exports =
        [r#"{"jobs":{"export":{"job":"00000000-0000-0000-0000-000000000b0b","from":262144,
            "length":262144}}}"#];
    let journeys =
        [r#"{"journey":{"sequenceNumber":7}}"#, r#"{"journey":{"messageId":"order-1"}}"#];
    let filters = [
        r#"{"samples":{"top":20}}"#,
        r#"{"explain":{"message":{"subject":"order","applicationProperties":{"price":7}}}}"#,
        r#"{"explain":{"sequenceNumber":7,"path":"other"}}"#,
        r#"{"whatIf":{"changes":[{"subscription":"eu","rule":{"name":"r","filter":{"type":"sql",
        "sql":"price > 5"}}},{"subscription":"us","remove":"r"}],"messageCount":10,"top":5}}"#,
    ];
    let operation = |question: &str| {
        let inspect = Inspect { path: "orders".into(), question: read(question) };
        Operation::Manage(Box::new(ManageOperation::Inspect(inspect)))
    };
    let path = || "orders".to_owned();
    let session_id = || "table-7".to_owned();
    let state = |state: Option<&'static [u8]>| {
        let state = state.map(Bytes::from_static);
        SetStateOfSession { path: path(), session_id: session_id(), state }
    };
    let act = |json: &str| ActOnMessages { path: path(), act: read(json) };
    let commands = [
        ManageOperation::BreakLocks(BreakLocks {
            path: path(),
            sequence_numbers: vec![7, 9],
            counted: true,
        }),
        ManageOperation::BreakSession(BreakSession {
            path: path(),
            session_id: session_id(),
            counted: false,
        }),
        ManageOperation::SetStateOfSession(state(Some(b"step 3"))),
        ManageOperation::SetStateOfSession(state(Some(&[0xff, 0x00]))),
        ManageOperation::SetStateOfSession(state(None)),
        ManageOperation::CloseClient(CloseClient { client: 12 }),
        ManageOperation::Act(act(
            r#"{"sequenceNumbers":[7,9],"deed":{"deadLetter":{"reason":"wrong"}},"breakLocks":true,
            "step":{"job":"00000000-0000-0000-0000-000000000b0b","number":3}}"#,
        )),
        ManageOperation::Act(act(
            r#"{"sequenceNumbers":[7],"deed":{"reschedule":{"later":"PT1H"}}}"#,
        )),
        ManageOperation::ForgetJob(ForgetJob { path: path(), job: Guid(0xb0b) }),
        ManageOperation::CreateJob(CreateJob {
            path: path(),
            draft: read(r#"{"where":"subject=test","deed":{"delete":{}},"rate":100,"trial":10}"#),
        }),
        ManageOperation::ControlJob(ControlJob {
            job: Guid(0xb0b),
            control: read(r#"{"start":{"digest":"00000000-0000-0000-0000-00000000d16e"}}"#),
        }),
    ];
    let kind = read(r#""deadLettersUnread""#);
    let mutes = [
        ManageOperation::MuteFinding(MuteFinding {
            path: path(),
            kind,
            reason: "known until Friday".into(),
        }),
        ManageOperation::UnmuteFinding(UnmuteFinding { path: path(), kind }),
    ];
    let manage = |command| Operation::Manage(Box::new(command));
    let all = questions.into_iter().map(operation).chain(commands.into_iter().map(manage));
    let all = all.chain(jobs.into_iter().map(operation));
    let all = all.chain(mutes.into_iter().map(manage));
    let all = all.chain(journeys.into_iter().map(operation));
    let all = all.chain(exports.into_iter().map(operation));
    all.chain(filters.into_iter().map(operation)).collect()
}

/// Returns one answer of each kind.
pub(super) fn notices() -> Vec<Notice> {
    const LOCK: &str = r#"{"takenAtUtc":"2026-05-01T12:00:00Z",
        "lockedUntilUtc":"2026-05-01T12:01:00Z","renewalCount":2,"holder":{"clientId":12,
        "transport":"amqp","name":"billing-7f","address":"10.0.0.4:51234","policy":"worker",
        "isConnected":true}}"#;
    let now = r#""nowUtc":"2026-05-01T12:00:05Z""#;
    let head = format!(
        r#"{{"sequenceNumber":7,"enqueuedSequenceNumber":0,"state":"locked",
        "enqueuedTimeUtc":"2026-05-01T12:00:00Z","deliveryCount":0,"hops":0,"size":99,
        "headerSize":40,"bodySize":11,"bodyKind":"data","bodyStart":"two coffees",
        "messageId":"order-1","applicationProperties":{{"table":7}},"lock":{LOCK}}}"#
    );
    let findings = [
        format!(r#"{{"heads":{{"heads":[{head}],"examined":3,"next":"AAAA",{now}}}}}"#),
        format!(
            r#"{{"locks":{{"locks":[{{"sequenceNumber":7,"messageCount":1,"deliveryCount":0,
            "lock":{LOCK}}}],"total":1,{now}}}}}"#
        ),
        format!(
            r#"{{"sessions":{{"sessions":[{{"sessionId":"table-7","activeMessageCount":4,
            "deferredMessageCount":0,"scheduledMessageCount":1,"isStuck":true,"stateSize":9,
            "stateSetAtUtc":"2026-05-01T12:00:00Z"}}],"total":1,{now}}}}}"#
        ),
        format!(r#"{{"sessionState":{{"stateSize":6,"from":0,"stateBase64":"c3RlcCAz",{now}}}}}"#),
        format!(
            r#"{{"timeline":{{"slotSeconds":600,"fromUtc":"2026-05-01T12:00:00Z",
            "counts":[3,0],"before":1,"later":2,{now}}}}}"#
        ),
        format!(
            r#"{{"body":{{"bodyKind":"data","bodySize":2,"from":0,"bodyBase64":"AP8=",{now}}}}}"#
        ),
        format!(
            r#"{{"entities":{{"entities":[{{"path":"orders","kind":"queue","status":"Active",
            "activeMessageCount":1,"deferredMessageCount":0,"scheduledMessageCount":0,
            "deadLetterMessageCount":2,"transferMessageCount":0,
            "transferDeadLetterMessageCount":0,"delayedMessageCount":0,"totalMessageCount":3,
            "lockedMessageCount":1,"sizeInBytes":99,"maxSizeInBytes":1073741824,
            "receiverCount":1,"lastSequenceNumber":7,"acceptedPerSecond":1.5,
            "removedPerSecond":1.0,"conditions":["hasDeadLetters","grows"]}}],"total":1,
            "totals":{{"activeMessageCount":1,"deferredMessageCount":0,"scheduledMessageCount":0,
            "deadLetterMessageCount":2,"transferMessageCount":0,
            "transferDeadLetterMessageCount":0,"delayedMessageCount":0,"totalMessageCount":3,
            "lockedMessageCount":1,"sizeInBytes":99,"receiverCount":1,"acceptedPerSecond":1.5,
            "removedPerSecond":1.0}},"countedAtUtc":"2026-05-01T12:00:04Z",{now}}}}}"#
        ),
        format!(
            r#"{{"clients":{{"clients":[{{"clientId":12,"transport":"amqp","name":"billing-7f",
            "address":"10.0.0.4:51234","connectedAtUtc":"2026-05-01T12:00:00Z",
            "lastActivityUtc":"2026-05-01T12:00:04Z","links":[{{"path":"orders",
            "role":"receiver","mode":"peekLock","credit":84,"deliveredCount":16,
            "unsettledCount":16}}],"linkCount":1}}],"total":1,{now}}}}}"#
        ),
        format!(r#"{{"tap":{{"tap":3,"heads":[{head}],"omitted":1204,{now}}}}}"#),
    ];
    let findings = findings.into_iter().map(|it| Notice::Findings(Box::new(read(&it))));
    let acted = r#"{"messages":[{"sequenceNumber":7,"result":"done"},
        {"sequenceNumber":9,"result":"locked"}]}"#;
    let counts = [Notice::LocksBroken(LocksBroken { count: 2 }), Notice::Acted(read(acted))];
    let job = format!(
        r#"{{"job":{{"job":"00000000-0000-0000-0000-000000000b0b","path":"orders",
        "state":"paused","problem":"the trial is over","deed":{{"delete":{{}}}},"rate":100,
        "trial":10,"createdAtUtc":"2026-05-01T12:00:00Z","startedAtUtc":"2026-05-01T12:00:01Z",
        "tried":10,"done":9,"failed":1,"preview":{{
        "digest":"00000000-0000-0000-0000-00000000d16e","untilUtc":"2026-05-01T12:10:00Z",
        "count":1204,"bytes":99000,"oldestUtc":"2026-05-01T11:00:00Z",
        "newestUtc":"2026-05-01T12:00:00Z","refused":[{{"result":"locked","count":1}}],
        "reasons":[{{"reason":"timeout","count":7}}],"samples":[7,9]}},{now}}}}}"#
    );
    let samples = format!(
        r#"{{"jobSamples":{{"samples":[{{"message":{head},"refused":"locked"}}],{now}}}}}"#
    );
    let failures = format!(
        r#"{{"jobFailures":{{"failures":[{{"sequenceNumber":9,"result":"locked"}}],"total":1,
        {now}}}}}"#
    );
    let topology = format!(
        r#"{{"topology":{{"nodes":[{{"name":"orders","kind":"unknown"}},
        {{"name":"https://hooks.example","kind":"foreign","scheme":"https"}}],
        "edges":[{{"from":0,"to":1,"kind":"forward","perSecond":1.5,"waiting":3,"failed":0}}],
        "nodeCount":2,"longestChain":{{"hops":1,"names":["orders","https://hooks.example"]}},
        "circles":[["a","b"]],"hopCountMax":4,"countedAtUtc":"2026-05-01T12:00:04Z",{now}}}}}"#
    );
    let checks = format!(
        r#"{{"checks":{{"findings":[{{"kind":"deadLettersUnread","weight":"warning",
        "path":"orders","sinceUtc":"2026-05-01T12:00:00Z","detail":"12 dead letters",
        "remedy":{:?},"others":["archive"],"muted":{{"reason":"known until Friday",
        "atUtc":"2026-05-01T12:00:04Z"}}}}],"total":1,"mutedCount":1,
        "checkedAtUtc":"2026-05-01T12:00:00Z","tookUs":812,{now}}}}}"#,
        peeklock_core::inspect::CheckKind::DeadLettersUnread.remedy()
    );
    let at = r#""atUtc":"2026-05-01T12:00:00Z","path":"orders","sequenceNumber":7"#;
    let journey = format!(
        r#"{{"journey":{{"stations":[{{{at},"station":"copiedFrom","otherPath":"events",
        "otherSequenceNumber":3,"hop":1,"rule":"eu"}},{{{at},"station":"lockEnded","client":{{
        "clientId":12,"transport":"amqp","isConnected":true}},"count":2,"lockEnd":"timeOver"}},
        {{{at},"station":"deadLettered","count":2,"cause":"deliveryCount"}},
        {{{at},"station":"job","job":"00000000-0000-0000-0000-000000000b0b"}},
        {{{at},"station":"rescheduled","dueAtUtc":"2026-05-01T13:00:00Z"}}],
        "completeSinceUtc":"2026-05-01T11:00:00Z","isCut":true,"hiddenCount":1,{now}}}}}"#
    );
    let export = format!(r#"{{"jobExport":{{"size":4,"from":2,"contentBase64":"fQo=",{now}}}}}"#);
    let sample = r#""enqueuedTimeUtc":"2026-05-01T12:00:00Z","size":99,"message":{"body":"",
        "messageId":"order-1","applicationProperties":{"table":7}}"#;
    let published = format!(
        r#"{{"samples":{{"samples":[{{"sequenceNumber":7,"copyCount":2,{sample}}}],"total":256,
        {now}}}}}"#
    );
    let explanation = format!(
        r#"{{"explanation":{{"message":{{"body":"","subject":"order"}},"subscriptions":[{{
        "subscription":"eu","rules":[{{"rule":"r","verdict":"matches","tests":[],"reads":[],
        "changes":["SET x = 1"]}}],"copies":[{{"rule":"r","message":{{"body":"",
        "applicationProperties":{{"x":1}}}},"deadLetterReason":"HeaderSizeExceeded",
        "deadLetterErrorDescription":"too large"}}]}}],"hiddenCount":1,"isCut":true,{now}}}}}"#
    );
    let what_if = format!(
        r#"{{"whatIf":{{"sampleCount":256,"messageCount":1000,"subscriptions":[{{
        "subscription":"eu","before":3,"after":2,"gained":1,"lost":2,"changed":1}}],
        "differenceCount":4,"differences":[{{"sample":{{"sequenceNumber":7,"subscription":"us",
        {sample}}},"gained":["eu"],"lost":[],"changed":["us"]}}],"hiddenCount":1,"isCut":true,
        {now}}}}}"#
    );
    let more = [
        job,
        failures,
        topology,
        checks,
        samples,
        journey,
        export,
        published,
        explanation,
        what_if,
    ];
    let more = more.map(|it| Notice::Findings(Box::new(read(&it))));
    findings.chain(counts).chain(more).collect()
}

/// Frames must not differ from the released ones.
#[test]
fn frames_of_questions_are_written_as_the_golden_ones() {
    let now = golden_of(operations(), notices());
    for (now, golden) in now.lines().zip(GOLDEN.lines()) {
        assert_eq!(now, golden);
    }
    assert_eq!(now.lines().count(), GOLDEN.lines().count(), "{now}");
}

/// A truncated frame yields no request that was incomplete.
#[test]
fn every_truncation_of_a_frame_of_questions_is_an_error() {
    assert_no_part_is_carried_out(&operations());
}

/// CON-41: findings with rows are printed as one line for each row, and others as one line.
#[test]
fn findings_have_one_line_for_each_row() {
    let keys = [
        "sequenceNumber",
        "sequenceNumber",
        "sessionId",
        "stateSize",
        "counts",
        "bodySize",
        "path",
        "clientId",
        "sequenceNumber",
    ];
    for (notice, key) in notices().into_iter().zip(keys) {
        let Notice::Findings(findings) = notice else { panic!() };
        // The golden position is none.
        let text = serde_json::to_string(&findings).unwrap().replace(r#","next":"AAAA""#, "");
        let view: FindingsView = read(&text);
        let findings = peeklock_core::inspect::Findings::try_from(view).unwrap();
        let lines = crate::client::findings_to_json(findings);
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(read::<serde_json::Value>(line).get(key).is_some(), "{key}: {line}");
    }
}
