package actions

import (
	"federator.dev/federator/internal/cli/hubclient"
	"federator.dev/federator/internal/hubrequests"
)

// hubFlags say how to reach the hub.
type hubFlags struct{ hubclient.Flags }

// open returns a client of the hub.
func (f *hubFlags) open() (*hubClient, error) {
	c, err := f.Open()
	if err != nil {
		return nil, err
	}
	return &hubClient{c}, nil
}

// hubClient is a client of the hub.
type hubClient struct{ hubrequests.Client }
