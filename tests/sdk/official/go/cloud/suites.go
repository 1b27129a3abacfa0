// Package cloud names what the official tests belong to, so that the versions of all their modules are pinned. It is a module
// of its own because it brings the SDKs of two other clouds, which only the whole run compiles.
package cloud

import _ "gocloud.dev/pubsub/azuresb"
