package externaldata

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"math/rand/v2"
	"path"
	"time"

	"federator.dev/federator/internal/clip"
	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/policy"
)

// fault is why a document could not be read.
type fault struct {
	reason, message string
	// certain says that what was read before is not the document any more; otherwise it counts until it is too old.
	certain bool
}

func invalid(message string) *fault { return &fault{"Invalid", message, true} }

// runner reads one document, with one goroutine. It alone uses the fields after triggered.
type runner struct {
	m         *Manager
	source    string
	spec      Document // as it was given
	cancel    context.CancelFunc
	done      chan struct{}   // closed when run has returned
	triggered trigger.Trigger // read it now

	doc      Document
	schema   *policy.ExternalSchema
	server   *server
	content  []byte    // the newest that was valid, as JSON; nil: none
	from     string    // of content
	commit   string    // of content, of a file
	at       time.Time // when it was last found to be so
	bad      *fault    // of the last read; nil: none
	reads    int
	failures int // consecutive
}

func (r *runner) run(ctx context.Context) {
	defer close(r.done)
	var err error
	if r.doc, r.schema, err = r.spec.withDefaults(); err == nil && r.doc.HTTPS != nil {
		if r.server, err = newServer(&r.doc, &r.m.opts); err == nil {
			defer r.server.close()
		}
	}
	if err != nil {
		if !r.spec.Pending {
			r.reads, r.bad = 1, &fault{"InvalidSpec", clip.Text(err.Error(), 300), true}
		}
		r.tell(ctx, time.Time{})
		<-ctx.Done()
		return
	}
	for ctx.Err() == nil {
		next := r.read(ctx)
		r.tell(ctx, next)
		r.wait(ctx, next)
	}
}

// wait waits until a time, or until triggered. Meanwhile the document may become too old. A zero time is when triggered.
func (r *runner) wait(ctx context.Context, next time.Time) {
	for {
		now := r.m.opts.Clock()
		until, ages := next, false
		if expires := r.at.Add(r.doc.MaxAge); r.content != nil && expires.After(now) && (until.IsZero() || expires.Before(until)) {
			until, ages = expires.Add(time.Nanosecond), true
		}
		var fired <-chan time.Time
		var t *time.Timer
		if !until.IsZero() {
			t = time.NewTimer(max(until.Sub(now), 0))
			fired = t.C
		}
		select {
		case <-ctx.Done():
		case <-r.triggered:
		case <-fired:
			if ages {
				r.tell(ctx, next)
				continue
			}
		}
		if t != nil {
			t.Stop()
		}
		return
	}
}

// reading is what one attempt to read a document gave.
type reading struct {
	text      []byte
	yaml      bool
	from      string
	at        time.Time // as of when it is
	etag      string    // of a server
	commit    string    // of a file
	unchanged bool      // it is what was taken last; there is no text
	bad       *fault
}

// read reads the document, and returns when to read it again; zero: when triggered.
func (r *runner) read(ctx context.Context) (next time.Time) {
	now := r.m.opts.Clock()
	var got reading
	switch {
	case r.server != nil:
		got = r.server.get(ctx)
	case r.doc.ConfigMap != nil:
		got = r.configMap(ctx)
	default:
		c := r.m.opts.Checkout(r.source)
		if c.Commit == "" && c.Pending {
			return time.Time{}
		}
		got = r.file(&c)
	}
	if ctx.Err() != nil {
		return time.Time{}
	}
	if got.at.IsZero() {
		got.at = now
	}
	r.take(got)
	switch {
	case r.server == nil:
	case r.bad == nil:
		r.server.etag = got.etag
	case r.bad.certain:
		r.server.etag = "" // also that of what is no document: whatever it has now is to be said again
	}
	return r.next(now)
}

// take takes in what an attempt gave.
func (r *runner) take(got reading) {
	if got.bad == nil && !got.unchanged {
		content, err := policy.DecodeExternal(got.text, got.yaml, r.doc.MaxBytes, r.schema)
		if err != nil {
			got.bad = invalid(clip.Line(err.Error(), 400))
		} else {
			r.content, r.from, r.commit = content, got.from, got.commit
		}
	}
	r.reads++
	if r.bad = got.bad; r.bad == nil {
		if r.failures = 0; !got.unchanged || got.at.After(r.at) {
			r.at = got.at
		}
	} else {
		r.failures++
	}
}

// next returns when to read again: at the same times in all processes, and later after failures.
func (r *runner) next(now time.Time) time.Time {
	switch {
	case r.doc.File != "":
		return time.Time{}
	case r.failures > 0:
		d := r.m.opts.MinBackoff
		for range r.failures - 1 {
			if d = min(2*d, r.m.opts.MaxBackoff); d == r.m.opts.MaxBackoff {
				break
			}
		}
		return now.Add(d - d/10 + rand.N(d/5+1))
	}
	h := fnv.New64a()
	_, _ = fmt.Fprintf(h, "%s/%s", r.source, r.doc.Key)
	interval := r.doc.Interval
	offset := time.Duration(h.Sum64() % uint64(interval)) // It is positive.
	since := (time.Duration(now.UnixNano()) - offset) % interval
	if since < 0 {
		since += interval
	}
	return now.Add(interval - since)
}

func (r *runner) configMap(ctx context.Context) reading {
	ctx, cancel := context.WithTimeout(ctx, r.m.opts.Timeout)
	defer cancel()
	at := r.doc.ConfigMap
	data, version, err := r.m.opts.ConfigMap(ctx, at.Name)
	switch {
	case errors.Is(err, ErrNotFound):
		return reading{bad: &fault{"NotFound", clip.Line(err.Error(), 300), true}}
	case err != nil:
		return reading{bad: &fault{"Unreachable", clip.Line(err.Error(), 200), false}}
	}
	text, ok := data[at.Key]
	if !ok {
		return reading{bad: &fault{"NotFound", fmt.Sprintf("ConfigMap %s has no key %q", at.Name, at.Key), true}}
	}
	return reading{text: []byte(text), yaml: isYAML(at.Key), from: fmt.Sprintf("ConfigMap %s/%s at %s", at.Name, at.Key, clip.Line(version, 64))}
}

// file reads the file of a commit.
func (r *runner) file(c *Checkout) reading {
	if c.Commit == "" {
		return reading{bad: &fault{"NoCommit", "no commit of the source is active", false}}
	}
	in, commit := clip.Line(path.Join(c.Path, r.doc.File), 200), c.Commit+" "+c.Path
	if commit == r.commit {
		return reading{unchanged: true, at: c.At}
	}
	info, err := fs.Stat(c.Tree, r.doc.File)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular():
		return reading{bad: &fault{"NotFound", fmt.Sprintf("commit %s has no file %s", c.Commit, in), true}}
	case err == nil && info.Size() > int64(r.doc.MaxBytes):
		return reading{bad: &fault{"TooLarge", fmt.Sprintf("%s of commit %s has more than %d bytes", in, c.Commit, r.doc.MaxBytes), true}}
	}
	var text []byte
	if err == nil {
		text, err = fs.ReadFile(c.Tree, r.doc.File)
	}
	if err != nil {
		return reading{bad: invalid(clip.Line(err.Error(), 300))}
	}
	return reading{text: text, yaml: isYAML(r.doc.File), from: fmt.Sprintf("%s of commit %s", in, c.Commit), at: c.At, commit: commit}
}

// tell tells the manager what is known now.
func (r *runner) tell(ctx context.Context, next time.Time) {
	now := r.m.opts.Clock()
	u := update{runner: r, document: policy.ExternalDocument{JSON: r.content, From: r.from, At: r.at}, status: Status{
		Key: r.spec.Key, From: r.from, Bytes: len(r.content), At: r.at, Next: next, Reason: "Current",
	}}
	d, s := &u.document, &u.status
	if r.bad != nil {
		s.Reason, s.Message = r.bad.reason, r.bad.message
	}
	switch {
	case r.bad != nil && r.bad.certain:
		d.Problem = r.bad.message
	case r.content == nil && r.reads == 0:
		d.Problem, d.Pending, s.Reason, s.Message = "it has not been read yet", true, "NotRead", "it has not been read yet"
	case r.content == nil:
		d.Problem = "it could not be read yet" // and the status says why, which may change
	case now.Sub(r.at) > r.doc.MaxAge:
		d.Problem = fmt.Sprintf("it is too old: it was last read at %s, and may be %s old", r.at.UTC().Format(time.RFC3339), r.doc.MaxAge)
		if s.Message != "" {
			s.Message = "; " + s.Message
		}
		s.Reason, s.Message = "TooOld", d.Problem+s.Message
	}
	s.Known = d.Problem == ""
	select {
	case r.m.updates <- u:
	case <-ctx.Done():
	}
}
