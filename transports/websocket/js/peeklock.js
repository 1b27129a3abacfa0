// The client of Peeklock for browsers and Node; see README.md in this folder.

export { connect, Connection } from "./connection.js";
export { ConnectionString } from "./credential.js";
export { Declarations } from "./declarations.js";
export { PeeklockError } from "./error.js";
export { Holders } from "./holders.js";
export { Inspection, Tap } from "./inspection.js";
export { ReceivedMessage } from "./message.js";
export { Queues } from "./queues.js";
export { Receiver } from "./receiver.js";
export { Sender } from "./sender.js";
export { SessionReceiver } from "./session.js";
export { subscriptionPath, Topics } from "./topics.js";
export { Transaction } from "./transaction.js";
export { typed, TypedValue } from "./value.js";
