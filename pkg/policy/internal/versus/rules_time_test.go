package versus

import (
	"strings"
	"time"

	"federator.dev/federator/pkg/policy/internal/value"
)

// instant returns the time that a text of RFC 3339 is, if it is one of the centuries that
// policies know.
func instant(s string) (time.Time, bool) {
	if s == "" {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339, s)
	return t, err == nil && t.Year() >= 1970 && t.Year() < 2200
}

// older reports whether what was created then has an age: from the next whole second on.
func (f *fleet) older(created string, age time.Duration) bool {
	t, ok := instant(created)
	return ok && !t.Add(age).After(time.Unix(f.now, 0))
}

func ageParam(params value.Value) (string, time.Duration) {
	after := params.Field("after").Str()
	age, err := time.ParseDuration(after)
	if err != nil {
		panic(err) // the schema has a pattern
	}
	return after, age
}

func pendingPod(params value.Value) rule {
	after, age := ageParam(params)
	return func(s *subject, out *findings) {
		status := s.object.Field("status")
		if !is(status.Field("phase"), "Pending") {
			return
		}
		if created, _ := text(s.object.Field("metadata").Field("creationTimestamp")); !s.fleet.older(created, age) {
			return
		}
		var reasons []string
		for _, c := range elems(status.Field("conditions")) {
			if reason, ok := text(c.Field("reason")); ok && is(c.Field("status"), "False") {
				reasons = append(reasons, reason)
			}
		}
		for _, list := range [...]string{"initContainerStatuses", "containerStatuses"} {
			for _, c := range elems(status.Field(list)) {
				if reason, ok := text(c.Field("state").Field("waiting").Field("reason")); ok {
					reasons = append(reasons, reason)
				}
			}
		}
		isPending(out, after, reasons)
	}
}

func isPending(out *findings, after string, reasons []string) {
	why := ""
	if len(reasons) > 0 {
		why = ": " + strings.Join(sorted(reasons), ", ")
	}
	out.add("pending for more than "+after+why, nil)
}

func unfinishedJob(params value.Value) rule {
	after, age := ageParam(params)
	return func(s *subject, out *findings) {
		status := s.object.Field("status")
		started, _ := text(status.Field("startTime"))
		if !s.fleet.older(started, age) || s.object.Field("spec").Field("suspend").IsTrue() {
			return
		}
		for _, c := range elems(status.Field("conditions")) {
			if is(c.Field("status"), "True") && (is(c.Field("type"), "Complete") || is(c.Field("type"), "Failed")) {
				return
			}
		}
		out.add("has run for more than "+after+", since "+started, nil)
	}
}

func nodeNotReady(params value.Value) rule {
	after, age := ageParam(params)
	annotation := params.Field("annotation").Str()
	return func(s *subject, out *findings) {
		for _, c := range elems(s.object.Field("status").Field("conditions")) {
			status := c.Field("status")
			changed, _ := text(c.Field("lastTransitionTime"))
			if !is(c.Field("type"), "Ready") || !status.Defined() || is(status, "True") || !s.fleet.older(changed, age) {
				continue
			}
			if !holds(s.object.Field("metadata").Field("annotations").Field(annotation)) {
				out.add("not ready for more than "+after+", since "+changed, nil)
			}
		}
	}
}
