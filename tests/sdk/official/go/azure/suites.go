// Package azure imports the modules that the official tests belong to, so that all their versions
// are pinned.
package azure

import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	_ "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	_ "github.com/Azure/go-amqp"
)
