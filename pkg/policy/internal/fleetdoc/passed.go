package fleetdoc

import (
	"fmt"
	"time"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/pkg/policy/internal/value"
)

// instantFormat is how the keys of data.fleet.passed are written.
const instantFormat = "2006-01-02T15:04:05Z"

// Instant returns the instant that a key of data.fleet.passed names, in seconds since 1970. One instant has one
// key, so that two spellings cannot be two reads.
func Instant(key string) (int64, error) {
	if len(key) == len(instantFormat) {
		if t, err := time.Parse(time.RFC3339, key); err == nil && key[len(key)-1] == 'Z' && key[10] == 'T' {
			return t.Unix(), nil
		}
	}
	return 0, fmt.Errorf("data.fleet.passed[%q]: the key is no instant in UTC and whole seconds, such as %q", clip.Text(key, 64), instantFormat)
}

// FormatInstant returns the key of an instant.
func FormatInstant(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(instantFormat) }

// Passed is data.fleet.passed at a key: true if the instant has passed, and nothing otherwise.
func Passed(instant, now int64) value.Value {
	if instant <= now {
		return value.True
	}
	return value.Value{}
}
