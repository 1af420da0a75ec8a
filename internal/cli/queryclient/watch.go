package queryclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// Event is a line of a watch.
type Event struct {
	Type   watch.EventType
	Object json.RawMessage
}

// Watch calls each with the events of a watch, and the lines that they are on, until the watch ends, which is no error. An error of the
// server is returned as it is.
func (a *Client) Watch(ctx context.Context, path string, query url.Values, each func(e Event, line []byte) error) error {
	stream, err := a.Open(ctx, path, query, "application/json")
	if err != nil {
		return err
	}
	defer stream.Close()
	events := json.NewDecoder(stream)
	for {
		var line json.RawMessage
		err := events.Decode(&line)
		if errors.Is(err, io.EOF) {
			return nil
		}
		var e Event
		if err == nil {
			err = json.Unmarshal(line, &e)
		}
		if err == nil && e.Type == watch.Error {
			status := &apierrors.StatusError{}
			if err = json.Unmarshal(e.Object, &status.ErrStatus); err == nil {
				return status
			}
		}
		if err == nil {
			err = each(e, line)
		}
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
	}
}
