package versus

import (
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"federator.dev/federator/internal/canonjson"
	"federator.dev/federator/pkg/policy/internal/value"
)

// pick steps through an object and keeps the values of keys, which are in order, as they
// are written.
func pick(b []byte, to [][]byte, keys ...string) {
	if len(b) == 0 || b[0] != '{' {
		return
	}
	r := canonjson.NewReader(b)
	at := 0
	for more := r.Open('{'); more && at < len(keys); more = r.Next('}') {
		key, _ := r.Key()
		for at < len(keys) && keys[at] < string(key) {
			at++
		}
		if at < len(keys) && keys[at] == string(key) {
			to[at] = r.Value()
			at++
			continue
		}
		r.Skip()
	}
}

// each calls f with the elements of an array.
func each(b []byte, f func(elem []byte)) {
	if len(b) == 0 || b[0] != '[' {
		return
	}
	r := canonjson.NewReader(b)
	for more := r.Open('['); more; more = r.Next(']') {
		f(r.Value())
	}
}

// get is canonjson.Get of what may be no object.
func get(b []byte, path ...string) []byte {
	for _, key := range path {
		var v [1][]byte
		if pick(b, v[:], key); v[0] == nil {
			return nil
		}
		b = v[0]
	}
	return b
}

// str returns the string that is written, which aliases b.
func str(b []byte) (string, bool) {
	if len(b) < 2 || b[0] != '"' {
		return "", false
	}
	s := unsafe.String(&b[1], len(b)-2)
	if strings.IndexByte(s, '\\') >= 0 {
		unquoted, err := canonjson.Unquote(b[1 : len(b)-1])
		return unquoted, err == nil
	}
	return s, true
}

func nameIn(b []byte) string {
	if name, ok := str(b); ok {
		return name
	}
	return "(unnamed)"
}

// podIn returns the spec of the Pod or the template in a body, and whether it is of a Pod
// that was made from a template.
func podIn(s *subject, body []byte) (spec []byte, made bool) {
	var v [2][]byte
	pick(body, v[:], "metadata", "spec")
	switch s.kind {
	case "Pod", "Job.batch":
		if templatedIn(s, v[0]) {
			return nil, true
		}
		if s.kind == "Pod" {
			return v[1], false
		}
	case "CronJob.batch":
		return get(v[1], "jobTemplate", "spec", "template", "spec"), false
	}
	return get(v[1], "template", "spec"), false
}

func templatedIn(s *subject, meta []byte) bool {
	var m [2][]byte
	pick(meta, m[:], "labels", "ownerReferences")
	found, made := false, false
	each(m[1], func(owner []byte) {
		var o [3][]byte
		if pick(owner, o[:], "apiVersion", "controller", "kind"); found || string(o[1]) != "true" {
			return
		}
		found = true
		kind := string(o[2])
		switch {
		case s.kind == "Job.batch":
			made = string(o[0]) == `"batch/v1"` && kind == `"CronJob"`
		case string(o[0]) == `"batch/v1"`:
			made = kind == `"Job"`
		case string(o[0]) == `"apps/v1"`:
			made = kind == `"DaemonSet"` || kind == `"StatefulSet"` || kind == `"ReplicaSet"` && get(m[0], "pod-template-hash") != nil
		}
	})
	return made
}

func privilegedBytes(params value.Value) byteRule {
	allowed, paths := capabilities(strs(params.Field("capabilities"))), newHostPaths(params.Field("hostPaths"))
	return func(s *subject, body []byte, out *findings) {
		spec, made := podIn(s, body)
		if made {
			return
		}
		var v [4][]byte
		pick(spec, v[:], "containers", "ephemeralContainers", "initContainers", "volumes")
		for _, list := range v[:3] {
			each(list, func(container []byte) {
				var c, context [2][]byte
				pick(container, c[:], "name", "securityContext")
				pick(c[1], context[:], "capabilities", "privileged")
				if string(context[1]) == "true" {
					name := nameIn(c[0])
					out.add("container "+name+" is privileged", details(nil).text("container", name).end())
				}
				each(get(context[0], "add"), func(added []byte) {
					if capability, ok := str(added); ok {
						allowed.check(out, nameIn(c[0]), capability)
					}
				})
			})
		}
		each(v[3], func(volume []byte) {
			var f [2][]byte
			pick(volume, f[:], "hostPath", "name")
			if path, ok := str(get(f[0], "path")); ok && !paths.allow(path) {
				mounts(out, nameIn(f[1]), path)
			}
		})
	}
}

func userIn(context []byte) (u user) {
	var f [2][]byte
	pick(context, f[:], "runAsNonRoot", "runAsUser")
	u.nonRoot = string(f[0]) == "true"
	u.hasNonRoot = u.nonRoot || string(f[0]) == "false"
	if id, err := strconv.Atoi(string(f[1])); err == nil {
		u.id, u.hasID = id, true
	}
	return u
}

func runAsNonRootBytes(params value.Value) byteRule {
	acceptUser := params.Field("acceptUser").IsTrue()
	return func(s *subject, body []byte, out *findings) {
		spec, made := podIn(s, body)
		if made {
			return
		}
		var v [4][]byte
		pick(spec, v[:], "containers", "ephemeralContainers", "initContainers", "securityContext")
		pod := userIn(v[3])
		for _, list := range v[:3] {
			each(list, func(container []byte) {
				var c [2][]byte
				pick(container, c[:], "name", "securityContext")
				name := nameIn(c[0])
				if msg := userIn(c[1]).judge(pod, acceptUser, name); msg != "" {
					out.add(msg, details(nil).text("container", name).end())
				}
			})
		}
	}
}

func hostNamespacesBytes(params value.Value) byteRule {
	r := newHostRules(params)
	return func(s *subject, body []byte, out *findings) {
		spec, made := podIn(s, body)
		if made {
			return
		}
		var v [6][]byte
		pick(spec, v[:], "containers", "ephemeralContainers", "hostIPC", "hostNetwork", "hostPID", "initContainers")
		for i, field := range hostNamespaceFields {
			if string(v[2+i]) == "true" {
				r.namespace(out, field)
			}
		}
		if string(v[3]) == "true" {
			return
		}
		for _, list := range [...][]byte{v[0], v[1], v[5]} {
			each(list, func(container []byte) {
				var c [2][]byte
				pick(container, c[:], "name", "ports")
				each(c[1], func(port []byte) {
					if n, err := strconv.Atoi(string(get(port, "hostPort"))); err == nil && n > 0 {
						r.port(out, nameIn(c[0]), n)
					}
				})
			})
		}
	}
}

func imageRegistryBytes(params value.Value) byteRule {
	r := newImageRules(params)
	textValue := func(b []byte) value.Value {
		if s, ok := str(b); ok {
			return value.Text(s)
		}
		return value.Value{}
	}
	return func(s *subject, body []byte, out *findings) {
		spec, made := podIn(s, body)
		if made {
			return
		}
		var v [4][]byte
		pick(spec, v[:], "containers", "ephemeralContainers", "initContainers", "volumes")
		for _, list := range v[:3] {
			each(list, func(container []byte) {
				var c [2][]byte
				pick(container, c[:], "image", "name")
				r.check(out, "container ", textValue(c[1]), textValue(c[0]))
			})
		}
		each(v[3], func(volume []byte) {
			var f [2][]byte
			if pick(volume, f[:], "image", "name"); f[0] != nil {
				r.check(out, "volume ", textValue(f[1]), textValue(get(f[0], "reference")))
			}
		})
	}
}

func requiredLabelsBytes(params value.Value) byteRule {
	wanted := newWantedLabels(params)
	return func(s *subject, body []byte, out *findings) {
		labels := get(body, "metadata", "labels")
		for i := range wanted {
			if w := &wanted[i]; w.of(s.kind) {
				value, _ := str(get(labels, w.key))
				w.check(out, value)
			}
		}
	}
}

func suspendedCronJobBytes(params value.Value) byteRule {
	annotation := params.Field("annotation").Str()
	return func(_ *subject, body []byte, out *findings) {
		var v [3][]byte
		pick(body, v[:], "metadata", "spec", "status")
		if string(get(v[1], "suspend")) != "true" {
			return
		}
		if why, _ := str(get(v[0], "annotations", annotation)); strings.TrimSpace(why) != "" {
			return
		}
		last, _ := str(get(v[2], "lastScheduleTime"))
		out.add(suspendedMessage(annotation, last), nil)
	}
}

func nodePortBytes(params value.Value) byteRule {
	r := newNodePorts(params)
	return func(_ *subject, body []byte, out *findings) {
		var v [2][]byte
		pick(get(body, "spec"), v[:], "ports", "type")
		if kind, _ := str(v[1]); kind != "NodePort" && !(r.loadBalancers && kind == "LoadBalancer") {
			return
		}
		each(v[0], func(port []byte) {
			if n, err := strconv.Atoi(string(get(port, "nodePort"))); err == nil {
				r.check(out, n)
			}
		})
	}
}

func wildcardsBytes(params value.Value) byteRule {
	r := &wildcardRules{strs(params.Field("fields")), params.Field("builtin").IsTrue()}
	slices.Sort(r.fields)
	return func(s *subject, body []byte, out *findings) {
		var v [3][]byte
		pick(body, v[:], "aggregationRule", "metadata", "rules")
		if len(v[0]) > 0 && v[0][0] == '{' {
			return
		}
		if !r.builtin && keptRole(s.name) && string(get(v[1], "labels", "kubernetes.io/bootstrapping")) == `"rbac-defaults"` {
			return
		}
		i := 0
		each(v[2], func(one []byte) {
			var lists [4][]byte
			pick(one, lists[:], r.fields...)
			for at, field := range r.fields {
				each(lists[at], func(x []byte) {
					if wildcard, ok := str(x); ok && isWildcard(wildcard) {
						r.report(out, i, field, wildcard)
					}
				})
			}
			i++
		})
	}
}
