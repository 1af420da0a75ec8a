package versus

import (
	"slices"

	"federator.dev/federator/pkg/policy/internal/value"
)

func privilegedBytes(params value.Value) byteRule {
	allowed, paths := capabilities(strs(params.Field("capabilities"))), newHostPaths(params.Field("hostPaths"))
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		if !r.toPod(s) {
			return
		}
		for key := range r.fields {
			switch key {
			case "containers", "ephemeralContainers", "initContainers":
				for range r.items {
					r.privileges(allowed, out)
				}
			case "volumes":
				for range r.items {
					r.hostPath(paths, out)
				}
			}
		}
	}
}

// privileges reads a container.
func (r *reader) privileges(allowed capabilities, out *findings) {
	name := unnamed
	for key := range r.fields {
		switch key {
		case "name":
			name = r.name()
		case "securityContext":
			for key := range r.fields {
				switch key {
				case "capabilities":
					for key := range r.fields {
						if key != "add" {
							continue
						}
						for range r.items {
							if added, ok := r.text(); ok {
								allowed.check(out, name, added)
							}
						}
					}
				case "privileged":
					if r.isTrue() {
						isPrivileged(out, name)
					}
				}
			}
		}
	}
}

// hostPath reads a volume.
func (r *reader) hostPath(paths hostPaths, out *findings) {
	path, ok, name := "", false, unnamed
	for key := range r.fields {
		switch key {
		case "hostPath":
			path, ok = r.textAt("path")
		case "name":
			name = r.name()
		}
	}
	if ok && !paths.allow(path) {
		mounts(out, name, path)
	}
}

// user reads a securityContext.
func (r *reader) user() (u user) {
	for key := range r.fields {
		switch key {
		case "runAsNonRoot":
			u.nonRoot = r.isTrue()
			u.hasNonRoot = u.nonRoot || r.Peek() == 'f'
		case "runAsUser":
			u.id, u.hasID = r.int()
		}
	}
	return u
}

func runAsNonRootBytes(params value.Value) byteRule {
	acceptUser := params.Field("acceptUser").IsTrue()
	type container struct {
		name string
		user user
	}
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		if !r.toPod(s) {
			return
		}
		var room [8]container
		list, pod := room[:0], user{}
		for key := range r.fields {
			switch key {
			case "containers", "ephemeralContainers", "initContainers":
				for range r.items {
					c := container{name: unnamed}
					for key := range r.fields {
						switch key {
						case "name":
							c.name = r.name()
						case "securityContext":
							c.user = r.user()
						}
					}
					list = append(list, c)
				}
			case "securityContext":
				pod = r.user()
			}
		}
		for i := range list {
			c := &list[i]
			if msg := c.user.judge(pod, acceptUser, c.name); msg != "" {
				out.add(msg, details(nil).text("container", c.name).end())
			}
		}
	}
}

func hostNamespacesBytes(params value.Value) byteRule {
	rules := newHostRules(params)
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		if !r.toPod(s) {
			return
		}
		var room [8]openPort
		ports, inNetwork := room[:0], false
		for key := range r.fields {
			switch key {
			case "containers", "ephemeralContainers", "initContainers":
				for range r.items {
					ports = r.hostPorts(ports)
				}
			case "hostIPC", "hostNetwork", "hostPID":
				if r.isTrue() {
					rules.namespace(out, key)
					inNetwork = inNetwork || key == "hostNetwork"
				}
			}
		}
		if inNetwork {
			return
		}
		for _, p := range ports {
			rules.port(out, p.container, p.port)
		}
	}
}

// openPort is a port of a node that a container has.
type openPort struct {
	container string
	port      int
}

// hostPorts reads a container.
func (r *reader) hostPorts(list []openPort) []openPort {
	name := unnamed
	for key := range r.fields {
		switch key {
		case "name":
			name = r.name()
		case "ports":
			for range r.items {
				for key := range r.fields {
					if key != "hostPort" {
						continue
					}
					if port, _ := r.int(); port > 0 {
						list = append(list, openPort{name, port})
					}
				}
			}
		}
	}
	return list
}

func imageRegistryBytes(params value.Value) byteRule {
	rules := newImageRules(params)
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		if !r.toPod(s) {
			return
		}
		for key := range r.fields {
			switch key {
			case "containers", "ephemeralContainers", "initContainers":
				for range r.items {
					ref, name := "", unnamed
					for key := range r.fields {
						switch key {
						case "image":
							ref, _ = r.text()
						case "name":
							name = r.name()
						}
					}
					rules.check(out, "container ", name, ref)
				}
			case "volumes":
				for range r.items {
					ref, name := "", unnamed
					for key := range r.fields {
						switch key {
						case "image":
							ref, _ = r.textAt("reference")
						case "name":
							name = r.name()
						}
					}
					rules.check(out, "volume ", name, ref)
				}
			}
		}
	}
}

// needs are up to 64 resources, and what a container or a Pod lacks of them, as bits.
type needs struct {
	name             string
	requests, limits uint64
}

// without reads which of the resources are not null.
func (r *reader) without(resources []string, lacking uint64) uint64 {
	for key := range r.fields {
		if i := slices.Index(resources, key); i >= 0 && r.Peek() != 'n' {
			lacking &^= 1 << i
		}
	}
	return lacking
}

// resources reads what is requested, for which a limit is enough, and limited.
func (r *reader) resources(requests, limits []string) (n needs) {
	n.requests, n.limits = 1<<len(requests)-1, 1<<len(limits)-1
	for key := range r.fields {
		switch key {
		case "limits":
			for key := range r.fields {
				if r.Peek() == 'n' {
					continue
				}
				if i := slices.Index(limits, key); i >= 0 {
					n.limits &^= 1 << i
				}
				if i := slices.Index(requests, key); i >= 0 {
					n.requests &^= 1 << i
				}
			}
		case "requests":
			n.requests = r.without(requests, n.requests)
		}
	}
	return n
}

func requestsAndLimitsBytes(params value.Value) byteRule {
	requests, limits := strs(params.Field("requests")), strs(params.Field("limits"))
	init := params.Field("initContainers").IsTrue()
	none := needs{unnamed, 1<<len(requests) - 1, 1<<len(limits) - 1}
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		if !r.toPod(s) {
			return
		}
		var room [8]needs
		list, pod := room[:0], none
		for key := range r.fields {
			switch key {
			case "containers", "initContainers":
				for range r.items {
					c, counts := none, init || key == "containers"
					for key := range r.fields {
						switch key {
						case "name":
							c.name = r.name()
						case "resources":
							of := r.resources(requests, limits)
							c.requests, c.limits = of.requests, of.limits
						case "restartPolicy":
							counts = counts || r.is("Always")
						}
					}
					if counts && c.requests|c.limits != 0 {
						list = append(list, c)
					}
				}
			case "resources":
				pod = r.resources(requests, limits)
			}
		}
		for _, c := range list {
			for i, resource := range requests {
				if c.requests&pod.requests>>i&1 == 1 {
					lacks(out, c.name, "request", "requests", resource)
				}
			}
			for i, resource := range limits {
				if c.limits&pod.limits>>i&1 == 1 {
					lacks(out, c.name, "limit", "limits", resource)
				}
			}
		}
	}
}

func probesBytes(params value.Value) byteRule {
	wanted := strs(params.Field("probes"))
	all := params.Field("allContainers").IsTrue()
	return func(s *subject, body []byte, out *findings) {
		r := newReader(body)
		if !r.toPod(s) {
			return
		}
		for list := range r.fields {
			if list != "containers" && list != "initContainers" {
				continue
			}
			for range r.items {
				name, serves, runs, missing := unnamed, all, list == "containers", uint64(1)<<len(wanted)-1
				for key := range r.fields {
					switch key {
					case "name":
						name = r.name()
					case "ports":
						for range r.items {
							serves = serves || r.holds()
						}
					case "restartPolicy":
						runs = runs || r.is("Always")
					case "livenessProbe", "readinessProbe", "startupProbe":
						if i := slices.Index(wanted, key); i >= 0 && r.Peek() == '{' {
							missing &^= 1 << i
						}
					}
				}
				for i, probe := range wanted {
					if serves && runs && missing>>i&1 == 1 {
						unprobed(out, name, probe)
					}
				}
			}
		}
	}
}
