// Package azure names what the official tests belong to, so that the versions of all their modules are pinned.
package azure

import (
	_ "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
	_ "github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus/admin"
	_ "github.com/Azure/go-amqp"
)
