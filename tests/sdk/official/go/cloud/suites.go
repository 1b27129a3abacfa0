// Package cloud imports the modules that the official tests belong to, so that all their versions
// are pinned. It is a separate module because it needs the SDKs of two other clouds, which only the
// whole run compiles.
package cloud

import _ "gocloud.dev/pubsub/azuresb"
