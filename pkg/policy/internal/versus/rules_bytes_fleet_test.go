package versus

import (
	"slices"

	"federator.dev/federator/pkg/policy/internal/value"
)

func pendingPodBytes(params value.Value) byteRule {
	after, age := ageParam(params)
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		created, pending := "", false
		var room [8]string
		reasons := room[:0]
		for key := range r.fields {
			switch key {
			case "metadata":
				created, _ = r.textAt("creationTimestamp")
			case "status":
				for key := range r.fields {
					switch key {
					case "conditions":
						reasons = r.failing(reasons)
					case "containerStatuses", "initContainerStatuses":
						reasons = r.waiting(reasons)
					case "phase":
						if pending = r.is("Pending"); !pending {
							return
						}
					}
				}
			}
		}
		if pending && s.fleet.older(created, age) {
			isPending(out, after, reasons)
		}
	}
}

// failing reads conditions, and appends the reasons of those that are false.
func (r *reader) failing(reasons []string) []string {
	for range r.items {
		reason, ok, failing := "", false, false
		for key := range r.fields {
			switch key {
			case "reason":
				reason, ok = r.text()
			case "status":
				failing = r.is("False")
			}
		}
		if ok && failing {
			reasons = append(reasons, reason)
		}
	}
	return reasons
}

// waiting reads the states of containers, and appends what those wait for that do.
func (r *reader) waiting(reasons []string) []string {
	for range r.items {
		for key := range r.fields {
			if key != "state" {
				continue
			}
			for key := range r.fields {
				if key != "waiting" {
					continue
				}
				if reason, ok := r.textAt("reason"); ok {
					reasons = append(reasons, reason)
				}
			}
		}
	}
	return reasons
}

func unfinishedJobBytes(params value.Value) byteRule {
	after, age := ageParam(params)
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		for key := range r.fields {
			switch key {
			case "spec":
				for key := range r.fields {
					if key == "suspend" && r.isTrue() {
						return
					}
				}
			case "status":
				for key := range r.fields {
					switch key {
					case "conditions":
						if r.ended() {
							return
						}
					case "startTime":
						if started, _ := r.text(); s.fleet.older(started, age) {
							out.add("has run for more than "+after+", since "+started, nil)
						}
						return
					}
				}
			}
		}
	}
}

// ended reads the conditions of a Job.
func (r *reader) ended() (ended bool) {
	for range r.items {
		holds := false
		for key := range r.fields {
			switch key {
			case "status":
				holds = r.is("True")
			case "type":
				of, _ := r.text()
				ended = ended || holds && (of == "Complete" || of == "Failed")
			}
		}
	}
	return ended
}

func nodeNotReadyBytes(params value.Value) byteRule {
	after, age := ageParam(params)
	annotation := params.Field("annotation").Str()
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		for key := range r.fields {
			switch key {
			case "metadata":
				if r.annotated(annotation) {
					return
				}
			case "status":
				if !r.to("conditions") {
					return
				}
				for range r.items {
					if changed, ok := r.notReady(); ok && s.fleet.older(changed, age) {
						out.add("not ready for more than "+after+", since "+changed, nil)
					}
				}
				return
			}
		}
	}
}

// annotated reads metadata and reports whether it has an annotation.
func (r *reader) annotated(name string) (is bool) {
	for key := range r.fields {
		if key != "annotations" {
			continue
		}
		for key := range r.fields {
			is = is || key == name && r.holds()
		}
	}
	return is
}

// notReady reads a condition, and returns since when the Node is not ready by it.
func (r *reader) notReady() (since string, not bool) {
	other, is := false, false
	for key := range r.fields {
		switch key {
		case "lastTransitionTime":
			since, _ = r.text()
		case "status":
			other = !r.is("True")
		case "type":
			is = r.is("Ready")
		}
	}
	return since, is && other
}

func imageSkewBytes(params value.Value) byteRule {
	group := params.Field("group").Str()
	return func(s *subject, body []byte, out *findings) {
		siblings := s.namesakes(s.kind)
		if len(siblings) < 4 { // its own alone
			return
		}
		r := newReader(body)
		if !r.toPod(s) {
			return
		}
		var room [8]running
		list := room[:0]
		for key := range r.fields {
			if key != "containers" && key != "initContainers" {
				continue
			}
			for range r.items {
				var c running
				okName, ok := false, false
				for key := range r.fields {
					switch key {
					case "image":
						c.image, ok = r.text()
					case "name":
						c.name, okName = r.text()
					}
				}
				if ok && okName {
					list = append(list, c)
				}
			}
		}
		s.skew(list, siblings, group, out)
	}
}

// labelIn is a label in a body.
func labelIn(body []byte, name string) (string, bool) {
	r := newReader(body)
	if r.to("metadata", "labels", name) {
		return r.text()
	}
	return "", false
}

func minRegionsBytes(params value.Value) byteRule {
	mark, label, required := params.Field("mark").Str(), params.Field("region").Str(), params.Field("regions").Int()
	return func(s *subject, body []byte, out *findings) {
		if mark != "" {
			if _, marked := labelIn(body, mark); !marked {
				return
			}
		}
		s.regions(label, required, out)
	}
}

func namespaceOwnerBytes(params value.Value) byteRule {
	rules := newOwnerRules(params)
	return func(s *subject, body []byte, out *findings) {
		if !rules.exempts(s) {
			own, _ := labelIn(body, rules.label)
			rules.compare(s, own, out)
		}
	}
}

func unusedNamespaceBytes(params value.Value) byteRule {
	rules := newUnusedRules(params)
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		if !rules.concern(s) || !r.to("metadata") {
			return
		}
		for key := range r.fields {
			switch key {
			case "annotations":
				for key := range r.fields {
					if key == rules.annotation && r.holds() {
						return
					}
				}
			case "creationTimestamp":
				created, _ := r.text()
				rules.check(s, created, out)
				return
			}
		}
	}
}

func orphanedPVCBytes(params value.Value) byteRule {
	labels := strs(params.Field("labels"))
	return func(s *subject, body []byte, out *findings) {
		if s.kind != "PersistentVolumeClaim" {
			return
		}
		r := newReader(body)
		size, sized, volume, bound := "", false, "", false
		for key := range r.fields {
			switch key {
			case "metadata":
				if r.hasLabel(labels) {
					return
				}
			case "spec":
				volume, _ = r.textAt("volumeName")
			case "status":
				for key := range r.fields {
					switch key {
					case "capacity":
						size, sized = r.textAt("storage")
					case "phase":
						bound = r.is("Bound")
					}
				}
			}
		}
		if bound && !s.claimed() {
			orphaned(out, size, sized, volume)
		}
	}
}

// hasLabel reads metadata and reports whether it has any of the labels.
func (r *reader) hasLabel(labels []string) (has bool) {
	for key := range r.fields {
		if key != "labels" {
			continue
		}
		for key := range r.fields {
			has = has || slices.Contains(labels, key) && r.holds()
		}
	}
	return has
}

func uniqueHostBytes(params value.Value) byteRule {
	rules := newHostClaims(params)
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		var room [8]string
		hosts := room[:0]
		add := func() {
			if host, _ := r.text(); host != "" && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
		list := "rules"
		if s.kind == "HTTPRoute.gateway.networking.k8s.io" {
			list = "hostnames"
		}
		if !r.to("spec", list) {
			return
		}
		for range r.items {
			if list == "hostnames" {
				add()
				continue
			}
			for key := range r.fields {
				if key == "host" {
					add()
				}
			}
		}
		rules.check(s, hosts, out)
	}
}
