// Package older imports an older version of the SDK, which Dapr ships. It reads refusals of links
// in another way.
package older

import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)
