package delivery

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"federator.dev/federator/pkg/aggregate"
	"federator.dev/federator/pkg/history"
	"federator.dev/federator/pkg/notify/selection"
	"federator.dev/federator/pkg/notify/sinks"
)

// typePrefix is that of the types of events; GapType is that of what is missing.
const (
	typePrefix = "dev.federator."
	GapType    = typePrefix + "gap"
	// DroppedType is that of a message in the place of one that its receiver has refused for too long.
	DroppedType = typePrefix + "dropped"
)

// typeNames are the types of records as Notifications name them.
var typeNames = map[history.Type]string{
	history.Verdict: "Violation", history.Action: "Action", history.Policy: "Policy", history.Member: "Member", history.Scope: "Kind", history.Object: "Object", history.Gap: "Gap",
}

// eventType returns the type of the event of a transition, or of several that have in common what is not "".
func eventType(of, transition string) string {
	if of == "" {
		return typePrefix + "transitions"
	}
	out := typePrefix + strings.ToLower(of)
	if transition != "" {
		out += "." + strings.ToLower(transition)
	}
	return out
}

// Transition is the data of an event about one transition, and what those about several have examples of.
type Transition struct {
	Key        string             `json:"key"`
	Time       time.Time          `json:"time"`
	MemberTime *time.Time         `json:"memberTime,omitempty"`
	Revision   aggregate.Revision `json:"revision,omitempty"`
	Trace      string             `json:"trace,omitempty"`
	Type       string             `json:"type"`
	Transition string             `json:"transition"`
	Policy     string             `json:"policy,omitempty"`
	Version    string             `json:"version,omitempty"`
	Source     string             `json:"source,omitempty"`
	Severity   string             `json:"severity,omitempty"`
	FirstSeen  *time.Time         `json:"firstSeen,omitempty"`
	Exempt     bool               `json:"exempt,omitempty"`
	Member     string             `json:"member,omitempty"`
	MemberUID  string             `json:"memberUID,omitempty"`
	Kind       aggregate.Kind     `json:"kind,omitempty"`
	Namespace  string             `json:"namespace,omitempty"`
	Name       string             `json:"name,omitempty"`
	UID        string             `json:"uid,omitempty"`
	Action     string             `json:"action,omitempty"`
	By         string             `json:"by,omitempty"`
	Subject    string             `json:"subject,omitempty"`
	// Violation, Changes and, unless it is federator's own, Message are text of objects: only where that is asked for.
	Violation string           `json:"violation,omitempty"`
	Changes   []history.Change `json:"changes,omitempty"`
	Message   string           `json:"message,omitempty"`
	From      *time.Time       `json:"from,omitempty"`
	To        *time.Time       `json:"to,omitempty"`
}

func transitionOf(r *history.Record, text bool) Transition {
	t := Transition{
		Key: keyOf(r, text), Time: r.Time.UTC(), MemberTime: r.MemberTime, Revision: r.Revision, Trace: r.Trace, Type: typeNames[r.Type], Transition: selection.Transition(r),
		Policy: r.Policy, Version: r.Version, Source: r.Source, Severity: r.Severity, FirstSeen: r.FirstSeen, Exempt: r.Exempt != "",
		Member: r.Member, MemberUID: r.MemberUID, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID,
		Action: r.Action, By: r.By, From: r.From, To: r.To,
	}
	if r.Type == history.Policy || r.Type == history.Gap || text {
		t.Message, t.Subject = r.Message, r.Subject
	}
	if text {
		t.Violation, t.Changes = r.Violation, r.Changes
	}
	return t
}

// keyOf returns the key of a transition. That of a violation of a key of a view has this in it, which is text of objects.
func keyOf(r *history.Record, text bool) string {
	if r.Type == history.Verdict && r.Subject != "" && !text {
		return hash(r.Key)
	}
	return r.Key
}

// subject names for people what a transition is about.
func subject(r *history.Record) string {
	if r.Type == history.Gap {
		return ""
	}
	var parts []string
	for _, part := range []string{r.Member, string(r.Kind), r.Namespace, r.Name} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "/")
}

// single returns the message of one transition.
func single(opts *Options, r *history.Record) (sinks.Message, error) {
	kind := eventType(typeNames[r.Type], selection.Transition(r))
	if r.Type == history.Gap {
		kind = GapType
	}
	return message(opts, shortID(keyOf(r, opts.IncludeText)), kind, subject(r), r.Time, transitionOf(r, opts.IncludeText))
}

// dropped returns the message that says that another was given up.
func dropped(opts *Options, m *sinks.Message, why error) (sinks.Message, error) {
	return message(opts, shortID(m.ID+"/dropped"), DroppedType, m.Subject, m.Time, map[string]string{"id": m.ID, "type": m.Type, "message": why.Error()})
}

func message(opts *Options, id, kind, subject string, at time.Time, data any) (sinks.Message, error) {
	text, err := json.Marshal(data)
	if err != nil {
		return sinks.Message{}, fmt.Errorf("message %s: %w", id, err)
	}
	return sinks.Message{ID: id, Type: kind, Source: opts.Origin, Subject: subject, Time: at.UTC(), Data: text}, nil
}

const maxID = 200 // bytes

// shortID returns an ID that a header may have: keys of views may be any text.
func shortID(id string) string {
	fits := len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool { return r <= ' ' || r > '~' })
	if fits && id != "" {
		return id
	}
	return hash(id)
}

// hash names parts, of which each has an end.
func hash(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
