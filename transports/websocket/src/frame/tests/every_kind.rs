//! One request and one notice of each kind.

use super::*;

fn error() -> WireError {
    WireError {
        condition: "MessageLockLost".into(),
        retryable: false,
        tracking_id: Guid(0x9b3f_1c52_0f6e_4cf1_9d0e_7f1d_0a8e_2b11),
        detail: "lock does not exist".into(),
        entity: "orders".into(),
        timestamp: at(1),
    }
}

fn queue_properties() -> QueueProperties {
    serde_json::from_str(
        r#"{"lockDuration":"PT30S","maxDeliveryCount":3,"status":"Active","forwardTo":null}"#,
    )
    .unwrap()
}

/// Returns one request of each kind.
pub(super) fn operations() -> Vec<Operation> {
    let token = Token(LockToken::new(SequenceNumber(7), 1));
    let path = || "orders".to_owned();
    let manage = |it| Operation::Manage(Box::new(it));
    vec![
        Operation::Hello(Hello {
            token: Some("secret".into()),
            client: Some("golden".into()),
            heartbeat_seconds: Some(10),
            grace_seconds: Some(30),
            resume: Some(Resume { resume_token: Guid(0xfeed), received: 17 }),
        }),
        Operation::Authenticate(Authenticate { token: "newer".into() }),
        Operation::Attach(Attach {
            link: 1,
            path: path(),
            role: Role::Receiver,
            mode: Mode::PeekLock,
            credit: Some(16),
        }),
        Operation::Detach(Detach { link: 1, release: true }),
        Operation::Credit(Credit { link: 1, up_to: 32 }),
        Operation::Drain(LinkOnly { link: 1 }),
        Operation::Send(Send { link: 2, messages: vec![outgoing(&message())] }),
        Operation::SendBatch(Send {
            link: 2,
            messages: vec![outgoing(&Message::new("a")), outgoing(&Message::new("b"))],
        }),
        Operation::CancelScheduled(Numbered { link: 2, sequence_numbers: vec![4, 5] }),
        Operation::Receive(Receive { link: 1, max_count: 10, wait_seconds: 1.5 }),
        Operation::Withdraw(Withdraw { request: 9 }),
        Operation::ReceiveDeferred(Numbered { link: 1, sequence_numbers: vec![6] }),
        Operation::Settle(Settle {
            link: 1,
            decision: Decision::DeadLetter,
            ranges: vec![Range(1, 64), Range(70, 70)],
            lock_tokens: vec![],
            properties: Some(properties()),
            reason: Some("poison".into()),
            description: Some("cannot be read".into()),
            delay_milliseconds: Delay::NONE,
        }),
        Operation::Renew(Renew { link: 1, ranges: vec![], lock_tokens: vec![token] }),
        Operation::Peek(Peek { link: 1, from: 0, max_count: 10 }),
        Operation::DeleteBatch(DeleteBatch {
            link: 1,
            max_count: Some(100),
            enqueued_before_utc: Some(at(0)),
        }),
        Operation::Purge(Purge { link: 1, enqueued_before_utc: None }),
        Operation::DeleteDeferred(DeleteDeferred { link: 1, sequence_number: 6 }),
        manage(ManageOperation::CreateQueue(CreateQueue {
            path: path(),
            properties: queue_properties(),
        })),
        manage(ManageOperation::GetQueue(PathOnly { path: path() })),
        manage(ManageOperation::UpdateQueue(UpdateQueue {
            path: path(),
            properties: queue_properties(),
            version: Some(at(2)),
        })),
        manage(ManageOperation::DeleteQueue(PathOnly { path: path() })),
        manage(ManageOperation::ListQueues(WholeList { skip: 0, top: Some(10) })),
        Operation::Heartbeat(Empty {}),
        Operation::AcceptSession(AcceptSession {
            link: 1,
            path: path(),
            session_id: Some("table-7".into()),
            mode: Mode::PeekLock,
            wait_seconds: Some(1.5),
            credit: Some(16),
        }),
        Operation::RenewSession(LinkOnly { link: 1 }),
        Operation::GetSessionState(LinkOnly { link: 1 }),
        Operation::SetSessionState(SetSessionState { link: 1, state: Some("step 3".into()) }),
        Operation::PeekSession(PeekSession {
            link: 1,
            session_id: "table-7".into(),
            from: 0,
            max_count: 10,
        }),
        Operation::ListSessions(ListSessions {
            path: path(),
            with_active_messages: true,
            state_set_after_utc: Some(at(0)),
            skip: 0,
            top: Some(10),
        }),
        Operation::DeleteUnlocked(DeleteUnlocked {
            path: path(),
            max_count: Some(100),
            enqueued_before_utc: None,
        }),
        Operation::Forward(Forward {
            link: 2,
            source: ForwardSource {
                broker: Guid(0xb0b),
                entity: 18,
                forwarding: Forwarding::DeadLetters,
            },
            messages: vec![ForwardedMessage {
                sequence_number: 42,
                enqueued_sequence_number: 7,
                enqueued_time_utc: at(0),
                hops: 2,
                dead_letter_source: Some("orders".into()),
                never_duplicate: true,
                copies_spent: 0,
                message: outgoing(&Message::new("a")),
            }],
        }),
        Operation::BeginTransaction(BeginTransaction { cross_entity: true }),
        Operation::SendIn(SendIn {
            transaction: 9,
            send: Send { link: 1, messages: vec![outgoing(&Message::new("a"))] },
        }),
        Operation::SettleIn(SettleIn {
            transaction: 9,
            settle: Settle {
                link: 2,
                decision: Decision::Complete,
                ranges: vec![Range(1, 2)],
                lock_tokens: vec![],
                properties: None,
                reason: None,
                description: None,
                delay_milliseconds: Delay::NONE,
            },
        }),
        Operation::RenewIn(RenewIn {
            transaction: 9,
            renew: Renew { link: 2, ranges: vec![], lock_tokens: vec![token] },
        }),
        Operation::Commit(CommitTransaction { transaction: 9, operations: Some(4) }),
        Operation::RollBack(TransactionOnly { transaction: 9 }),
        Operation::AttachVia(AttachVia { link: 3, path: path(), destination: "invoices".into() }),
        Operation::CancelScheduledIn(CancelScheduledIn {
            transaction: 9,
            cancel_scheduled: Numbered { link: 1, sequence_numbers: vec![4, 5] },
        }),
        Operation::SetSessionStateIn(SetSessionStateIn {
            transaction: 9,
            set_session_state: SetSessionState { link: 2, state: Some("step 3".into()) },
        }),
    ]
}

fn queue_view() -> QueueView {
    serde_json::from_str(
        r#"{"path":"orders","lockDuration":"PT1M","maxSizeInMegabytes":1024,
        "requiresDuplicateDetection":false,"duplicateDetectionHistoryTimeWindow":"PT10M",
        "requiresSession":false,"defaultMessageTimeToLive":"P10675199DT2H48M5.4775807S",
        "deadLetteringOnMessageExpiration":false,"maxDeliveryCount":10,
        "enableBatchedOperations":true,"status":"Active","forwardTo":null,
        "forwardDeadLetteredMessagesTo":null,"autoDeleteOnIdle":"P10675199DT2H48M5.4775807S",
        "enablePartitioning":false,"enableExpress":false,"maxMessageSizeInKilobytes":1024,
        "userMetadata":null,"runtime":{"activeMessageCount":1,"deferredMessageCount":0,
        "scheduledMessageCount":0,"deadLetterMessageCount":0,"transferMessageCount":0,
        "transferDeadLetterMessageCount":0,"totalMessageCount":1,"sizeInBytes":99,"lastSequenceNumber":7,
        "createdAt":"2026-05-01T12:00:00Z","updatedAt":"2026-05-01T12:00:00Z",
        "accessedAt":"0001-01-01T00:00:00Z"}}"#,
    )
    .unwrap()
}

/// Returns one notice of each kind.
pub(super) fn notices() -> Vec<Notice> {
    vec![
        Notice::Done(Empty {}),
        Notice::Error(error()),
        Notice::Welcome(Box::new(Welcome {
            resumed: false,
            received: 0,
            resume_token: Some(Guid(0xfeed)),
            grace_seconds: 30,
            heartbeat_seconds: 20,
            now_utc: at(0),
            namespace: "peeklock".into(),
            server: "peeklock/0.1.0".into(),
            frame_bytes_max: 4_194_304,
            command_count_max: 4_096,
            link_count_max: 256,
            unsettled_count_max: 8_192,
        })),
        Notice::Accepted(Accepted {
            sequence_numbers: vec![Run(1_001, 2), Run(0, 1)],
            failed: vec![FailedSend { index: 2, error: error() }],
        }),
        Notice::Settled(Settled { failed: vec![FailedRange { from: 3, to: 5, error: error() }] }),
        Notice::Renewed(Renewed { locked_until_utc: Some(at(60)), failed: vec![] }),
        Notice::Received(Messages { messages: vec![delivered()] }),
        Notice::Drained(Drained { unused: 12 }),
        Notice::Deleted(Deleted { count: 4_000 }),
        Notice::Queue(Box::new(queue_view())),
        Notice::Queues(QueueList { queues: vec![queue_view()] }),
        Notice::SessionAccepted(SessionAccepted {
            session_id: "table-7".into(),
            locked_until_utc: at(60),
        }),
        Notice::SessionState(SessionState { state: Some(vec![0xff, 0x00].into()) }),
        Notice::Sessions(SessionList { session_ids: vec!["table-7".into(), "table-8".into()] }),
        Notice::Forwarded(Forwarded {
            tried: 3,
            failed: vec![FailedSend { index: 2, error: error() }],
        }),
        Notice::Transaction(TransactionOnly { transaction: 9 }),
        Notice::Committed(Committed {
            parts: vec![
                CommittedPart {
                    sequence_numbers: vec![Run(7, 1)],
                    pending_numbers: vec![],
                    locked_until_utc: None,
                },
                CommittedPart {
                    sequence_numbers: vec![],
                    pending_numbers: vec![],
                    locked_until_utc: Some(at(60)),
                },
                CommittedPart {
                    sequence_numbers: vec![],
                    pending_numbers: vec![Run(8, 2)],
                    locked_until_utc: None,
                },
            ],
        }),
        Notice::Deliveries(Deliveries { link: 1, first: 17, messages: vec![delivered()] }),
        Notice::Detached(Detached { link: 1, error: error() }),
        Notice::Heartbeat(Empty {}),
        Notice::Closing(Closing { seconds: 5 }),
    ]
}
