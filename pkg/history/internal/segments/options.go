package segments

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Options are what a log is opened with.
type Options struct {
	Directory string // made if it does not exist

	// Key encrypts files: 16 bytes or more, or none. Files of another key are a gap until they expire.
	Key []byte

	// Boot identifies the run of the operating system: what was written and not synced is lost with
	// the power only. Empty: Linux's boot_id, or, without one, nobody knows.
	Boot string

	MaxBytes int64         // on disk; the oldest segments expire. 0: no bound
	MaxAge   time.Duration // entries are kept this long, and at most an eighth longer. 0: no bound

	// SegmentBytes is how many bytes of payloads and facets a segment has, and 16 for each entry. 0:
	// 32 MiB, or an eighth of MaxBytes if that is less.
	SegmentBytes int64

	Now func() time.Time // nil: time.Now
	Log *slog.Logger     // nil: nothing is logged
}

const (
	defaultSegmentBytes = 32 << 20
	minSegmentBytes     = 64 << 10
	maxSegmentBytes     = 256 << 20
)

// complete checks options, and sets what was left out.
func (o *Options) complete() error {
	if o.Directory == "" {
		return errors.New("segments: no directory")
	}
	if n := len(o.Key); n > 0 && n < 16 {
		return fmt.Errorf("segments: a key of %d bytes, at least 16 are needed", n)
	}
	if o.MaxBytes < 0 || o.MaxAge < 0 || o.SegmentBytes < 0 {
		return errors.New("segments: bounds are not negative")
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
		if o.MaxBytes > 0 {
			o.SegmentBytes = max(minSegmentBytes, min(o.SegmentBytes, o.MaxBytes/8))
		}
	}
	if o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes {
		return fmt.Errorf("segments: segments of %d bytes, between %d and %d are possible", o.SegmentBytes, minSegmentBytes, maxSegmentBytes)
	}
	if o.MaxBytes > 0 && o.MaxBytes < 4*o.SegmentBytes {
		return fmt.Errorf("segments: %d bytes have no room for four segments of %d", o.MaxBytes, o.SegmentBytes)
	}
	if o.Boot == "" {
		if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil {
			o.Boot = strings.TrimSpace(string(boot))
		}
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}
