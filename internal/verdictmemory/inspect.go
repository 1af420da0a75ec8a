package verdictmemory

import (
	"errors"
	"fmt"
	"io/fs"

	"federator.dev/federator/pkg/policy"
)

// Contents is what is kept of verdicts.
type Contents struct {
	Violations  int    `json:"violations"` // whose time is known
	Quarantines int    `json:"quarantines"`
	Problem     string `json:"problem,omitempty"` // what is not as it was written
}

// Inspect returns what is kept in a directory. It changes nothing.
func Inspect(directory string, key []byte) (Contents, error) {
	s, err := newSecrets(key)
	if err != nil {
		return Contents{}, err
	}
	seen, quarantines, err := s.read(directory)
	var c Contents
	for _, of := range seen {
		for _, list := range of {
			c.Violations += len(list)
		}
	}
	c.Quarantines = len(quarantines)
	if err != nil {
		c.Problem = err.Error()
	}
	return c, nil
}

// read returns what is in a directory, as far as it is sound. Files that are not there have nothing.
func (s secrets) read(directory string) (seen, []policy.KeptQuarantine, error) {
	violations, err := readFile(seenFile(directory), s.readSeen)
	quarantines, failed := readFile(quarantinesFile(directory), s.readQuarantines)
	sound := func(file string, err error) error {
		if err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("%s: %w", file, err)
	}
	return violations, quarantines, errors.Join(sound("violations", err), sound("quarantines", failed))
}
