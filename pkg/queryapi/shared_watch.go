package queryapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/queryapi/internal/fanout"
	"federator.dev/federator/pkg/queryapi/internal/part"
	"federator.dev/federator/pkg/queryapi/internal/route"
)

// WatchSharer is a Sharer that can be watched where several processes share the fleet. Its Watch writes lines of JSON that
// begin with their type, {"type":"ADDED",…}, whole ones at a time. The object of each BOOKMARK has a resourceVersion and a
// revision, and follows the events that it stands for.
type WatchSharer interface {
	Sharer
	Watchable
	// WatchShared is Watch where several processes share the fleet.
	WatchShared(w http.ResponseWriter, r *http.Request, caller Caller, fleet SharedFleet) error
}

// SharedWatch says how watches of all processes become one. Their events are sent as they come. A process that is lost, or
// comes, and a member that moves end it with 410.
type SharedWatch struct {
	Query url.Values // what each process is asked, without a resourceVersion
	// From is a resourceVersion of a list or watch of this process; "": it begins with all that there is.
	From    string
	Timeout time.Duration // 0: the default
	// BookmarkInterval and WriteTimeout are those of watches of objects where they are 0.
	BookmarkInterval, WriteTimeout time.Duration
	// Bookmark makes a bookmark's object of the newest one of each process. It must have Version as resourceVersion.
	Bookmark func(ctx context.Context, of SharedBookmark) (any, error)
}

// SharedBookmark is what a bookmark of a SharedWatch is made of.
type SharedBookmark struct {
	Parts    []json.RawMessage // the newest of each process
	Absent   []string          // members that none of them answers for, in order
	Partial  bool              // a process is missing
	Revision aggregate.Revision
	Version  string
	Initial  bool // all that there is has been sent by now
}

// Watch implements SharedFleet.
func (f sharedFleet) Watch(of SharedWatch) error {
	var from aggregate.Revision
	if of.From != "" {
		if from = fanout.ParseRevision(of.From); from == 0 {
			return apierrors.NewResourceExpired("resource version " + strconv.Quote(of.From) + " was issued by another replica or before a restart")
		}
	}
	query := url.Values{}
	for name, values := range of.Query {
		switch name {
		case "resourceVersion", "timeoutSeconds", "timeout":
		default:
			query[name] = values
		}
	}
	return f.server.shared.WatchQuery(f.w, f.r, f.caller.user, fanout.QueryWatch{
		Query: query, From: from, Timeout: of.Timeout, BookmarkInterval: of.BookmarkInterval, WriteTimeout: of.WriteTimeout,
		Bookmark: func(ctx context.Context, parts []json.RawMessage, absent []string, partial bool, at aggregate.Revision, initial bool) (any, error) {
			return of.Bookmark(ctx, SharedBookmark{parts, absent, partial, at, VersionOf(at), initial})
		},
	})
}

// VersionOf returns the resourceVersion of what was answered by parts at a revision.
func VersionOf(r aggregate.Revision) string { return strconv.FormatUint(uint64(r), 10) }

// InPart reports whether the response of a Query will be a part of that of several processes. The Query answers then for
// what this process judges, which is what it judges in a snapshot.
func InPart(ctx context.Context, at *aggregate.Snapshot) bool {
	ask := part.From(ctx)
	if ask == nil {
		return false
	}
	ask.Judged = at
	return true
}

// MembersInPart returns the members, in order, that a Query is to answer for in a part, those for which this process stands in
// among them.
func MembersInPart(ctx context.Context, at *aggregate.Snapshot) (members []string, ok bool) {
	ask := part.From(ctx)
	if ask == nil {
		return nil, false
	}
	return ask.Members(at), true
}

// Moved reports whether between two snapshots this process was given a member that another one judged, or gave one away, so
// that a watch of its part cannot go on.
func Moved(ctx context.Context, before, after *aggregate.Snapshot) bool {
	ask := part.From(ctx)
	return ask != nil && ask.Moved(before, after)
}

// positionHeader is how a Query says where a watch of its part can go on. It is sent to nobody.
const positionHeader = "Federator-Position"

// SetPosition says, in a part, where a watch with the same parameters can go on after this answer.
func SetPosition(w http.ResponseWriter, resourceVersion string) {
	w.Header().Set(positionHeader, resourceVersion)
}

// watchPart serves the part of this process of a watch of a query.
func (s *Server) watchPart(w http.ResponseWriter, r *http.Request, target route.Target, ask *part.Ask) error {
	p := &partWriter{ResponseWriter: w, own: http.Header{}, head: func() *part.Header {
		if ask.Judged != nil {
			return part.JudgedHeader(s.options.Index.First(), ask)
		}
		return part.NewHeader(s.options.Index.First(), s.options.Index.Snapshot(), ask)
	}}
	err := s.serveQuery(p, r, target)
	var status apierrors.APIStatus
	if !p.started && errors.As(err, &status) && apierrors.IsForbidden(err) {
		refused := status.Status()
		p.refused, err = &refused, nil
	}
	if err != nil {
		return err
	}
	p.WriteHeader(http.StatusOK)
	if p.failed == nil {
		_, p.failed = w.Write(part.Append(nil, part.End, nil))
	}
	if p.failed != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

var (
	bookmarkLine = []byte(`{"type":"BOOKMARK",`)
	errorLine    = []byte(`{"type":"ERROR",`)
)

// partWriter makes the events of a watch of a query, which are lines, frames of a part.
type partWriter struct {
	http.ResponseWriter

	own     http.Header
	head    func() *part.Header
	refused *metav1.Status
	started bool
	failed  error
	out     []byte
}

// Unwrap is for http.ResponseController.
func (p *partWriter) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// Header implements http.ResponseWriter: that of a part is another.
func (p *partWriter) Header() http.Header { return p.own }

// WriteHeader implements http.ResponseWriter.
func (p *partWriter) WriteHeader(code int) {
	if p.started {
		return
	}
	p.started = true
	p.ResponseWriter.Header().Set("Content-Type", part.ContentType)
	p.ResponseWriter.WriteHeader(code)
	head := p.head()
	head.Refused = p.refused
	if p.out, p.failed = part.AppendHeader(p.out[:0], head); p.failed == nil {
		_, p.failed = p.ResponseWriter.Write(p.out)
	}
}

// Write implements http.ResponseWriter. It is given whole lines.
func (p *partWriter) Write(lines []byte) (int, error) {
	p.WriteHeader(http.StatusOK)
	p.out = p.out[:0]
	for line := range bytes.Lines(lines) {
		switch {
		case bytes.HasPrefix(line, bookmarkLine):
			p.out = p.appendObject(p.out, part.BookmarkFrame, line)
		case bytes.HasPrefix(line, errorLine):
			p.out = p.appendObject(p.out, part.ErrorFrame, line)
		default:
			at := len(p.out)
			p.out = append(part.AppendEvent(part.Begin(p.out, part.EventFrame), 0, nil), line...)
			p.out = part.Finish(p.out, at)
		}
	}
	if p.failed == nil {
		_, p.failed = p.ResponseWriter.Write(p.out)
	}
	if cap(p.out) > maxIdleOut {
		p.out = nil
	}
	return len(lines), p.failed
}

// maxIdleOut is how large a buffer may be while nothing is sent.
const maxIdleOut = 128 << 10

// appendObject appends a frame with the object of an event.
func (p *partWriter) appendObject(dst []byte, kind part.Type, line []byte) []byte {
	var event struct{ Object json.RawMessage }
	if err := json.Unmarshal(line, &event); err != nil {
		p.failed = err
		return dst
	}
	return part.Append(dst, kind, event.Object)
}
