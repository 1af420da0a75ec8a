package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"federator.dev/federator/pkg/history"
)

// position is how far a Notification has come in a log. It is the content of a file.
type position struct {
	Log   string `json:"log"`
	After uint64 `json:"after"` // all up to here is sent, or not selected
	// Until is the time of the transition there.
	Until time.Time `json:"until"`
	// Floor is the time before which others have reported.
	Floor      time.Time   `json:"floor"`
	Collection *collection `json:"collection,omitempty"` // nil: none was begun
	LastSent   time.Time   `json:"lastSent,omitzero"`
	// Missing is the gap before the log; nil: there is none, or it was sent.
	Missing *history.Record `json:"missing,omitempty"`
	// Gaps are the keys of those that were sent last: readers meet them again.
	Gaps []string `json:"gaps,omitempty"`
}

// collection is a part of the log whose messages are being sent.
type collection struct {
	To   uint64   `json:"to"`             // its last position
	Sent []string `json:"sent,omitempty"` // the IDs of the messages that were taken
}

const keptGaps = 16

// load reads a position; without a file it is of no log.
func load(file string) (position, error) {
	var p position
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return position{}, fmt.Errorf("position in %s: %w", filepath.Base(file), err)
	}
	return p, nil
}

// save writes a position in the place of another. Durable ones outlast a loss of power; after it the others may be
// older, and what was sent since is sent again.
func (p *position) save(file string, durable bool) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	temporary := file + ".tmp"
	f, err := os.OpenFile(temporary, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temporary, file)
	}
	return err
}

func (p *position) reported(gap string) bool { return slices.Contains(p.Gaps, gap) }

func (p *position) addGap(gap string) {
	if p.Missing != nil && p.Missing.Key == gap {
		p.Missing = nil
	}
	p.Gaps = append(p.Gaps, gap)
	if n := len(p.Gaps) - keptGaps; n > 0 {
		p.Gaps = p.Gaps[n:]
	}
}
