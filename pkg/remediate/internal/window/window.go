// Package window says when corrections may be written.
package window

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/robfig/cron/v3"
)

// Window is when corrections may be written.
type Window struct {
	text     string // of the schedule
	schedule cron.Schedule
	duration time.Duration
	zone     *time.Location
}

// New returns a window that opens by a schedule (five fields, as in crontab(5)) in a
// time zone of the IANA database, for a duration.
func New(schedule string, duration time.Duration, zone string) (*Window, error) {
	s, err := cron.ParseStandard(schedule)
	if err != nil {
		return nil, fmt.Errorf("window: schedule %q: %w", schedule, err)
	}
	if duration <= 0 {
		return nil, fmt.Errorf("window: duration %v is not positive", duration)
	}
	at, err := time.LoadLocation(zone)
	if err != nil {
		return nil, fmt.Errorf("window: %w", err)
	}
	return &Window{text: schedule, schedule: s, duration: duration, zone: at}, nil
}

// encoded is a Window as text.
type encoded struct {
	Schedule string        `json:"schedule"`
	Duration time.Duration `json:"duration"` // in nanoseconds
	Zone     string        `json:"zone"`
}

// MarshalJSON implements json.Marshaler.
func (w *Window) MarshalJSON() ([]byte, error) {
	return json.Marshal(encoded{w.text, w.duration, w.zone.String()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (w *Window) UnmarshalJSON(text []byte) error {
	var e encoded
	if err := json.Unmarshal(text, &e); err != nil {
		return fmt.Errorf("window: %w", err)
	}
	made, err := New(e.Schedule, e.Duration, e.Zone)
	if err != nil {
		return err
	}
	*w = *made
	return nil
}

// IsOpen reports whether the window is open at a time, and when it closes, or else when it
// opens next. A nil window is always open.
func (w *Window) IsOpen(now time.Time) (yes bool, until time.Time) {
	if w == nil {
		return true, time.Time{}
	}
	now = now.In(w.zone)
	// Next is exclusive: a window that opens exactly now is open.
	start := w.schedule.Next(now.Add(-w.duration))
	if start.IsZero() {
		return false, time.Time{} // a day that never comes, such as 30 February
	}
	if start.After(now) {
		return false, start
	}
	// Windows may overlap: the last one to open counts.
	for {
		next := w.schedule.Next(start)
		if next.IsZero() || next.After(now) {
			return true, start.Add(w.duration)
		}
		start = next
	}
}
