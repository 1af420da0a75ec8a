package versus

import (
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

func requiredLabelsBytes(params value.Value) byteRule {
	wanted := newWantedLabels(params)
	return func(s *subject, body []byte, out *findings) {
		var room [8]string
		values := append(room[:0], make([]string, len(wanted))...)
		if r := newReader(body); r.to("metadata", "labels") {
			for key := range r.fields {
				for i := range wanted {
					if wanted[i].key == key {
						values[i], _ = r.text()
						break
					}
				}
			}
		}
		for i := range wanted {
			if w := &wanted[i]; w.of(s.kind) {
				w.check(out, values[i])
			}
		}
	}
}

func suspendedCronJobBytes(params value.Value) byteRule {
	annotation := params.Field("annotation").Str()
	return func(_ *subject, body []byte, out *findings) {
		r := newReader(body)
		last, ran, suspended := "", false, false
		for key := range r.fields {
			switch key {
			case "metadata":
				for key := range r.fields {
					if key != "annotations" {
						continue
					}
					if why, _ := r.textAt(annotation); strings.TrimSpace(why) != "" {
						return
					}
				}
			case "spec":
				for key := range r.fields {
					suspended = suspended || key == "suspend" && r.isTrue()
				}
				if !suspended {
					return
				}
			case "status":
				last, ran = r.textAt("lastScheduleTime")
			}
		}
		if suspended {
			out.add(suspendedMessage(annotation, last, ran), nil)
		}
	}
}

func nodePortBytes(params value.Value) byteRule {
	rules := newNodePorts(params)
	return func(_ *subject, body []byte, out *findings) {
		r := newReader(body)
		if !r.to("spec") {
			return
		}
		var room [16]int
		ports, kind := room[:0], ""
		for key := range r.fields {
			switch key {
			case "ports":
				for range r.items {
					for key := range r.fields {
						if key == "nodePort" {
							port, _ := r.int()
							ports = append(ports, port)
						}
					}
				}
			case "type":
				kind, _ = r.text()
			}
		}
		if kind == "NodePort" || rules.loadBalancers && kind == "LoadBalancer" {
			for _, port := range ports {
				rules.check(out, port)
			}
		}
	}
}

func wildcardsBytes(params value.Value) byteRule {
	rules := &wildcardRules{strs(params.Field("fields")), params.Field("builtin").IsTrue()}
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		kept := !rules.builtin && keptRole(s.name)
		for key := range r.fields {
			switch key {
			case "aggregationRule":
				if r.Peek() == '{' {
					return
				}
			case "metadata":
				if kept && r.isDefaultRole() {
					return
				}
			case "rules":
				i := 0
				for range r.items {
					r.wildcards(rules, i, out)
					i++
				}
			}
		}
	}
}

// isDefaultRole reads the metadata of a role.
func (r *reader) isDefaultRole() (is bool) {
	for key := range r.fields {
		if key == "labels" {
			value, _ := r.textAt("kubernetes.io/bootstrapping")
			is = value == "rbac-defaults"
		}
	}
	return is
}

// wildcards reads a rule of a role.
func (r *reader) wildcards(rules *wildcardRules, i int, out *findings) {
	for field := range r.fields {
		if !slices.Contains(rules.fields, field) {
			continue
		}
		for range r.items {
			if wildcard, ok := r.text(); ok && isWildcard(wildcard) {
				rules.report(out, i, field, wildcard)
			}
		}
	}
}

func ingressTLSBytes(params value.Value) byteRule {
	annotations, plain := strs(params.Field("annotations")), strs(params.Field("plainHosts"))
	return func(_ *subject, body []byte, out *findings) {
		r := newReader(body)
		var room [16]string
		hosts, catchesAll, anyHost := room[:0], false, false
		for key := range r.fields {
			switch key {
			case "metadata":
				if r.hasAny(annotations) {
					return
				}
			case "spec":
				for key := range r.fields {
					switch key {
					case "defaultBackend":
						catchesAll = catchesAll || r.Peek() == '{'
					case "rules":
						var all bool
						hosts, all = r.ingressHosts(hosts)
						catchesAll = catchesAll || all
					case "tls": // after the rules
						hosts, anyHost = r.uncovered(hosts)
					}
				}
			}
		}
		if anyHost {
			return
		}
		for _, host := range hosts {
			if !slices.Contains(plain, host) {
				isPlain(out, host)
			}
		}
		if catchesAll {
			out.add(plainDefault, nil)
		}
	}
}

// hasAny reads metadata and reports whether any of the annotations is there.
func (r *reader) hasAny(annotations []string) (has bool) {
	for key := range r.fields {
		if key != "annotations" {
			continue
		}
		for key := range r.fields {
			if slices.Contains(annotations, key) {
				value, _ := r.text()
				has = has || value != ""
			}
		}
	}
	return has
}

// ingressHosts reads the rules of an Ingress, and reports whether one has no host.
func (r *reader) ingressHosts(hosts []string) (list []string, all bool) {
	for range r.items {
		none := r.Peek() == '{'
		for key := range r.fields {
			if key != "host" {
				continue
			}
			if host, ok := r.text(); host != "" {
				hosts, none = append(hosts, host), false
			} else {
				none = ok || r.Peek() == 'n'
			}
		}
		all = all || none
	}
	return hosts, all
}

// uncovered reads a tls section, and returns the hosts that are not in it, or that all are.
func (r *reader) uncovered(hosts []string) (list []string, all bool) {
	for range r.items {
		empty := r.Peek() == '{'
		for key := range r.fields {
			if key != "hosts" {
				continue
			}
			empty = r.Peek() == 'n' || r.Peek() == '['
			for range r.items {
				empty = false
				if name, ok := r.text(); ok {
					hosts = slices.DeleteFunc(hosts, func(host string) bool { return certifies(name, host) })
				}
			}
		}
		all = all || empty
	}
	return hosts, all
}

func loadBalancerBytes(params value.Value) byteRule {
	b := newBalancers(params)
	return func(_ *subject, body []byte, out *findings) {
		r := newReader(body)
		var ofSpec []string
		ofAnnotation, inside, kind := "", false, ""
		for key := range r.fields {
			switch key {
			case "metadata":
				ofAnnotation, inside = r.balancerAnnotations(b)
			case "spec":
				for key := range r.fields {
					switch key {
					case "loadBalancerClass":
						class, ok := r.text()
						inside = inside || ok && slices.Contains(b.classes, class)
					case "loadBalancerSourceRanges":
						for range r.items {
							if text, ok := r.text(); ok {
								ofSpec = append(ofSpec, strings.TrimSpace(text))
							}
						}
					case "type":
						kind, _ = r.text()
					}
				}
			}
		}
		if kind != "LoadBalancer" || inside {
			return
		}
		if ofSpec == nil {
			ofSpec = splitRanges(ofAnnotation)
		}
		b.check(out, ofSpec)
	}
}

// balancerAnnotations reads metadata.
func (r *reader) balancerAnnotations(b *balancers) (ranges string, inside bool) {
	for key := range r.fields {
		if key != "annotations" {
			continue
		}
		for key := range r.fields {
			if key == rangesAnnotation {
				ranges, _ = r.text()
			} else if i := slices.IndexFunc(b.internal, func(a annotation) bool { return a.key == key }); i >= 0 {
				value, ok := r.text()
				inside = inside || ok && b.internal[i].has(value)
			}
		}
	}
	return ranges, inside
}

func clusterAdminBindingsBytes(params value.Value) byteRule {
	rules := newAdminRules(params)
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		var to role
		for key := range r.fields {
			switch key {
			case "roleRef":
				var kind, name string
				var named bool
				for key := range r.fields {
					switch key {
					case "kind":
						kind, _ = r.text()
					case "name":
						name, named = r.text()
					}
				}
				if to = rules.role(kind, name, named); !to.strong && !to.open {
					return
				}
			case "subjects": // after the role
				for range r.items {
					rules.check(s, to, r.holder(), out)
				}
			}
		}
	}
}

// holder reads a subject of a binding.
func (r *reader) holder() (h holder) {
	for key := range r.fields {
		switch key {
		case "kind":
			h.kind, h.hasKind = r.text()
		case "name":
			h.name, h.hasName = r.text()
		case "namespace":
			h.namespace, h.namespaced = r.text()
		}
	}
	return h
}
