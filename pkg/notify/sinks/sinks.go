package sinks

import (
	"bytes"
	"encoding/json"
	"time"

	"federator.dev/federator/pkg/notify/internal/webhook"
)

// Message is one CloudEvent (https://github.com/cloudevents/spec, 1.0.2, JSON format 3) for a sink.
type Message struct {
	ID      string // visible ASCII, at most 256 bytes; equal for the same content, sent again
	Type    string // dev.federator.<kind>.<transition>, such as dev.federator.violation.opened
	Source  string // a URI reference that names this hub
	Subject string // what it is about; may be empty
	Time    time.Time
	Data    json.RawMessage // an object; nil: none
}

// FieldError is what is wrong with a field of options or of a message.
type FieldError = webhook.FieldError

// RefusedError is the answer of a server that has not taken what was posted.
type RefusedError = webhook.RefusedError

// maxID bounds what a header carries, and what a server of NATS remembers of each message for a while.
const maxID = 256

// body returns the message in the structured mode of CloudEvents, or a FieldError.
func (m *Message) body() ([]byte, error) {
	switch {
	case !isVisible(m.ID) || len(m.ID) > maxID:
		return nil, &FieldError{Field: "id", Problem: "it is not 1 to 256 bytes of visible ASCII"}
	case m.Type == "":
		return nil, &FieldError{Field: "type", Problem: "it is empty"}
	case m.Source == "":
		return nil, &FieldError{Field: "source", Problem: "it is empty"}
	case m.Data != nil && (!json.Valid(m.Data) || !bytes.HasPrefix(bytes.TrimSpace(m.Data), []byte("{"))):
		return nil, &FieldError{Field: "data", Problem: "it is not an object"}
	}
	e := event{SpecVersion: "1.0", ID: m.ID, Source: m.Source, Type: m.Type, Subject: m.Subject, Time: m.Time.UTC(), Data: m.Data}
	if m.Data != nil {
		e.DataContentType = "application/json"
	}
	text, err := json.Marshal(&e)
	if err != nil { // a year of more than four digits
		return nil, &FieldError{Field: "time", Problem: err.Error()}
	}
	return text, nil
}

// isVisible tells whether a text has a byte, and each of them may stand in a header.
func isVisible(text string) bool {
	for i := range len(text) {
		if text[i] <= ' ' || text[i] > '~' {
			return false
		}
	}
	return text != ""
}

// event is the JSON of a Message.
type event struct {
	SpecVersion     string          `json:"specversion"`
	ID              string          `json:"id"`
	Source          string          `json:"source"`
	Type            string          `json:"type"`
	Subject         string          `json:"subject,omitempty"`
	Time            time.Time       `json:"time,omitzero"`
	DataContentType string          `json:"datacontenttype,omitempty"`
	Data            json.RawMessage `json:"data,omitempty"`
}
