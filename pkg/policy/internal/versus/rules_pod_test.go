package versus

import (
	"slices"
	"strconv"
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// podSpec returns the spec of the Pod, or of the template of Pods.
func podSpec(s *subject) value.Value {
	spec := s.object.Field("spec")
	switch s.kind {
	case "Pod":
		return spec
	case "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps", "Job.batch":
		return spec.Field("template").Field("spec")
	case "CronJob.batch":
		return spec.Field("jobTemplate").Field("spec").Field("template").Field("spec")
	}
	return value.Value{}
}

// templated reports whether the subject was made from a template that is evaluated itself.
func templated(s *subject) bool {
	if s.kind != "Pod" && s.kind != "Job.batch" {
		return false
	}
	meta := s.object.Field("metadata")
	for _, owner := range elems(meta.Field("ownerReferences")) {
		if !owner.Field("controller").IsTrue() {
			continue
		}
		version, _ := text(owner.Field("apiVersion"))
		kind, _ := text(owner.Field("kind"))
		return hasTemplate(s.kind, version, kind, kind == "ReplicaSet" && holds(meta.Field("labels").Field("pod-template-hash")))
	}
	return false
}

// hasTemplate reports whether what is of a kind and has this controller was made from a template
// that is evaluated itself. hash says whether it has the label of Deployments.
func hasTemplate(kind, version, controller string, hash bool) bool {
	switch {
	case kind == "Job.batch":
		return version == "batch/v1" && controller == "CronJob"
	case version == "batch/v1":
		return controller == "Job"
	case version == "apps/v1":
		return controller == "DaemonSet" || controller == "StatefulSet" || controller == "ReplicaSet" && hash
	}
	return false
}

// containerLists are the fields of a Pod's containers.
var containerLists = [...]string{"containers", "initContainers", "ephemeralContainers"}

const unnamed = "(unnamed)"

func nameOf(container value.Value) string { return orUnnamed(container.Field("name")) }

func orUnnamed(v value.Value) string {
	if name, ok := text(v); ok {
		return name
	}
	return unnamed
}

// hostPaths are the directories of nodes that may be mounted.
type hostPaths struct{ exact, below []string }

func newHostPaths(v value.Value) hostPaths {
	p := hostPaths{exact: strs(v)}
	for _, path := range p.exact {
		p.below = append(p.below, strings.TrimSuffix(path, "/")+"/")
	}
	return p
}

func (p hostPaths) allow(path string) bool {
	return slices.Contains(p.exact, path) || slices.ContainsFunc(p.below, func(dir string) bool { return strings.HasPrefix(path, dir) })
}

// capabilities are those that may be added.
type capabilities []string

func (c capabilities) check(out *findings, container, added string) {
	capability := strings.TrimPrefix(strings.ToUpper(added), "CAP_")
	if !slices.Contains(c, capability) && !slices.Contains(c, "ALL") {
		out.add("container "+container+" adds capability "+capability, details(nil).text("capability", capability).text("container", container).end())
	}
}

func isPrivileged(out *findings, container string) {
	out.add("container "+container+" is privileged", details(nil).text("container", container).end())
}

func mounts(out *findings, volume, path string) {
	out.add("volume "+volume+" mounts "+path+" of the node", details(nil).text("path", path).text("volume", volume).end())
}

func privileged(params value.Value) rule {
	allowed, paths := capabilities(strs(params.Field("capabilities"))), newHostPaths(params.Field("hostPaths"))
	return func(s *subject, out *findings) {
		if templated(s) {
			return
		}
		pod := podSpec(s)
		for _, list := range containerLists {
			for _, c := range elems(pod.Field(list)) {
				context := c.Field("securityContext")
				if context.Field("privileged").IsTrue() {
					isPrivileged(out, nameOf(c))
				}
				for _, added := range elems(context.Field("capabilities").Field("add")) {
					if name, ok := text(added); ok {
						allowed.check(out, nameOf(c), name)
					}
				}
			}
		}
		for _, volume := range elems(pod.Field("volumes")) {
			if path, ok := text(volume.Field("hostPath").Field("path")); ok && !paths.allow(path) {
				mounts(out, nameOf(volume), path)
			}
		}
	}
}

// user is what a securityContext says of the user.
type user struct {
	id         int
	hasID      bool
	nonRoot    bool
	hasNonRoot bool
}

func userOf(context value.Value) (u user) {
	if id := context.Field("runAsUser"); id.IsNumber() {
		u.id, u.hasID = id.Int(), true
	}
	if must := context.Field("runAsNonRoot"); must.Kind() == value.Boolean {
		u.nonRoot, u.hasNonRoot = must.IsTrue(), true
	}
	return u
}

// judge says what a container's settings come to, below those of its Pod.
func (u user) judge(pod user, acceptUser bool, container string) string {
	if !u.hasID {
		u.id, u.hasID = pod.id, pod.hasID
	}
	if !u.hasNonRoot {
		u.nonRoot = pod.nonRoot
	}
	switch {
	case u.hasID && u.id == 0:
		return "container " + container + " runs as user 0"
	case !u.nonRoot && !(acceptUser && u.hasID && u.id > 0):
		return "container " + container + " may run as root"
	}
	return ""
}

func runAsNonRoot(params value.Value) rule {
	acceptUser := params.Field("acceptUser").IsTrue()
	return func(s *subject, out *findings) {
		if templated(s) {
			return
		}
		pod := podSpec(s)
		ofPod := userOf(pod.Field("securityContext"))
		for _, list := range containerLists {
			for _, c := range elems(pod.Field(list)) {
				name := nameOf(c)
				if msg := userOf(c.Field("securityContext")).judge(ofPod, acceptUser, name); msg != "" {
					out.add(msg, details(nil).text("container", name).end())
				}
			}
		}
	}
}

// portRange is a range of ports of nodes that may be taken.
type portRange struct{ min, max int }

// hostRules are the parameters of host_namespaces.
type hostRules struct {
	namespaces []string
	ports      []portRange
}

func newHostRules(params value.Value) hostRules {
	r := hostRules{namespaces: strs(params.Field("namespaces"))}
	for _, p := range elems(params.Field("ports")) {
		r.ports = append(r.ports, portRange{p.Field("min").Int(), p.Field("max").Int()})
	}
	return r
}

func (r *hostRules) namespace(out *findings, field string) {
	if !slices.Contains(r.namespaces, field) {
		out.add("the Pod uses "+field, details(nil).text("field", field).end())
	}
}

func (r *hostRules) port(out *findings, container string, port int) {
	if !slices.ContainsFunc(r.ports, func(p portRange) bool { return p.min <= port && port <= p.max }) {
		out.add("container "+container+" uses host port "+strconv.Itoa(port), details(nil).text("container", container).int("port", port).end())
	}
}

var hostNamespaceFields = [...]string{"hostIPC", "hostNetwork", "hostPID"}

func hostNamespaces(params value.Value) rule {
	r := newHostRules(params)
	return func(s *subject, out *findings) {
		if templated(s) {
			return
		}
		pod := podSpec(s)
		for _, field := range hostNamespaceFields {
			if pod.Field(field).IsTrue() {
				r.namespace(out, field)
			}
		}
		if pod.Field("hostNetwork").IsTrue() {
			return
		}
		for _, list := range containerLists {
			for _, c := range elems(pod.Field(list)) {
				for _, p := range elems(c.Field("ports")) {
					if port := p.Field("hostPort"); port.IsNumber() && port.Int() > 0 {
						r.port(out, nameOf(c), port.Int())
					}
				}
			}
		}
	}
}

func lacks(out *findings, container, what, field, resource string) {
	out.add("container "+container+" has no "+what+" for "+resource, details(nil).text("container", container).text("field", field).text("resource", resource).end())
}

func requestsAndLimits(params value.Value) rule {
	requests, limits := strs(params.Field("requests")), strs(params.Field("limits"))
	init := params.Field("initContainers").IsTrue()
	given := func(resources value.Value, field, resource string) bool {
		v := resources.Field(field).Field(resource)
		return v.Defined() && v.Kind() != value.Null
	}
	check := func(out *findings, c, pod value.Value) {
		own, shared := c.Field("resources"), pod.Field("resources")
		limited := func(r string) bool { return given(own, "limits", r) || given(shared, "limits", r) }
		for _, r := range requests {
			if !given(own, "requests", r) && !given(shared, "requests", r) && !limited(r) {
				lacks(out, nameOf(c), "request", "requests", r)
			}
		}
		for _, r := range limits {
			if !limited(r) {
				lacks(out, nameOf(c), "limit", "limits", r)
			}
		}
	}
	return func(s *subject, out *findings) {
		if templated(s) {
			return
		}
		pod := podSpec(s)
		for _, c := range elems(pod.Field("containers")) {
			check(out, c, pod)
		}
		for _, c := range elems(pod.Field("initContainers")) {
			if init || is(c.Field("restartPolicy"), "Always") {
				check(out, c, pod)
			}
		}
	}
}

func unprobed(out *findings, container, probe string) {
	out.add("container "+container+" has no "+probe, details(nil).text("container", container).text("probe", probe).end())
}

func probes(params value.Value) rule {
	wanted := strs(params.Field("probes"))
	all := params.Field("allContainers").IsTrue()
	check := func(out *findings, c value.Value) {
		if !all && !slices.ContainsFunc(elems(c.Field("ports")), holds) {
			return
		}
		for _, probe := range wanted {
			if c.Field(probe).Kind() != value.Object {
				unprobed(out, nameOf(c), probe)
			}
		}
	}
	return func(s *subject, out *findings) {
		switch s.kind {
		case "Deployment.apps", "StatefulSet.apps", "DaemonSet.apps":
		default:
			return
		}
		pod := s.object.Field("spec").Field("template").Field("spec")
		for _, c := range elems(pod.Field("containers")) {
			check(out, c)
		}
		for _, c := range elems(pod.Field("initContainers")) {
			if is(c.Field("restartPolicy"), "Always") {
				check(out, c)
			}
		}
	}
}
