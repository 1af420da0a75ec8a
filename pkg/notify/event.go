package notify

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"federator.dev/federator/internal/clip"
)

// Event is a CloudEvent in JSON (https://github.com/cloudevents/spec, 1.0.2, JSON format 3).
type Event struct {
	SpecVersion     string            `json:"specversion"`
	ID              string            `json:"id"`
	Source          string            `json:"source"`
	Type            string            `json:"type"`
	Subject         string            `json:"subject,omitempty"`
	Time            time.Time         `json:"time"`
	DataContentType string            `json:"datacontenttype,omitempty"`
	Data            map[string]string `json:"data,omitempty"`
}

// Limits of an event, so that many fit into a ConfigMap.
const (
	maxID      = 200 // bytes
	maxSubject = 512
	maxValue   = 1024
	maxValues  = 16
)

// newEvent returns the event of a fact, within the limits.
func newEvent(origin string, f *Fact) Event {
	e := Event{
		SpecVersion: "1.0", ID: shortID(f.id()), Source: origin, Type: f.Type, Subject: clip.Text(f.Subject, maxSubject), Time: f.At.UTC(),
	}
	for _, key := range sortedKeys(f.Data) {
		if len(e.Data) == maxValues {
			break
		}
		if e.Data == nil {
			e.Data, e.DataContentType = map[string]string{}, "application/json"
		}
		e.Data[clip.Text(key, maxID)] = clip.Text(f.Data[key], maxValue)
	}
	return e
}

// body returns what is sent and signed.
func (e *Event) body() []byte {
	text, err := json.Marshal(e)
	if err != nil {
		panic("notify: an event of strings cannot be encoded: " + err.Error())
	}
	return text
}

// shortID bounds an id, and keeps it distinct.
func shortID(id string) string {
	if len(id) <= maxID {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return clip.Text(id, maxID-33) + "-" + hex.EncodeToString(sum[:16])
}
