package versus

import (
	"net"
	"slices"
	"strings"

	"federator.dev/federator/pkg/policy/internal/value"
)

// isEmpty reports whether a field of an object is missing, null or an empty list.
func isEmpty(v value.Value) bool {
	return !v.Defined() || v.Kind() == value.Null || v.Kind() == value.Array && v.Len() == 0
}

// certifies reports whether a name of a tls section covers a host.
func certifies(name, host string) bool {
	if name == host {
		return true
	}
	if name == "" || name[0] != '*' {
		return false
	}
	at := strings.IndexByte(host, '.')
	return at < 0 && name == "*" || at >= 0 && name[1:] == host[at:]
}

// covered reports whether a host is in the tls section of an Ingress, by itself or by its
// wildcard.
func covered(tls []value.Value, host string) bool {
	for _, entry := range tls {
		for _, h := range elems(entry.Field("hosts")) {
			if name, ok := text(h); ok && certifies(name, host) {
				return true
			}
		}
	}
	return false
}

const plainDefault = "the default backend, or a rule without a host, is served without TLS"

func isPlain(out *findings, host string) {
	out.add("host "+host+" is served without TLS", details(nil).text("host", host).end())
}

func ingressTLS(params value.Value) rule {
	annotations, plain := strs(params.Field("annotations")), strs(params.Field("plainHosts"))
	return func(s *subject, out *findings) {
		has := s.object.Field("metadata").Field("annotations")
		for _, key := range annotations {
			if value, _ := text(has.Field(key)); value != "" {
				return
			}
		}
		spec := s.object.Field("spec")
		tls := elems(spec.Field("tls"))
		if slices.ContainsFunc(tls, func(t value.Value) bool { return t.Kind() == value.Object && isEmpty(t.Field("hosts")) }) {
			return
		}
		catchesAll := spec.Field("defaultBackend").Kind() == value.Object
		for _, r := range elems(spec.Field("rules")) {
			h := r.Field("host")
			host, ok := text(h)
			switch {
			case host != "":
				if !covered(tls, host) && !slices.Contains(plain, host) {
					isPlain(out, host)
				}
			case ok, !h.Defined() && r.Kind() == value.Object, h.Kind() == value.Null:
				catchesAll = true
			}
		}
		if catchesAll {
			out.add(plainDefault, nil)
		}
	}
}

// annotation is an annotation with a value in lower case.
type annotation struct{ key, value string }

func (a *annotation) has(value string) bool { return strings.ToLower(value) == a.value }

// balancers are the parameters of load_balancer.
type balancers struct {
	internal []annotation
	classes  []string
	ranges   []*net.IPNet
}

func newBalancers(params value.Value) *balancers {
	b := &balancers{classes: strs(params.Field("internalClasses"))}
	pairs := params.Field("internalAnnotations").Pairs()
	for i := 0; i < len(pairs); i += 2 {
		b.internal = append(b.internal, annotation{pairs[i].Str(), strings.ToLower(pairs[i+1].Str())})
	}
	for _, text := range strs(params.Field("sourceRanges")) {
		if _, n, err := net.ParseCIDR(text); err == nil {
			b.ranges = append(b.ranges, n)
		}
	}
	return b
}

func (b *balancers) allow(text string) bool {
	_, n, err := net.ParseCIDR(text)
	if err != nil {
		return false
	}
	ones, bits := n.Mask.Size()
	return slices.ContainsFunc(b.ranges, func(outer *net.IPNet) bool {
		o, size := outer.Mask.Size()
		return size == bits && o <= ones && outer.Contains(n.IP)
	})
}

const rangesAnnotation = "service.beta.kubernetes.io/load-balancer-source-ranges"

func sourceRanges(spec, annotations value.Value) (list []string) {
	for _, r := range elems(spec.Field("loadBalancerSourceRanges")) {
		if text, ok := text(r); ok {
			list = append(list, strings.TrimSpace(text))
		}
	}
	if list == nil {
		all, _ := text(annotations.Field(rangesAnnotation))
		return splitRanges(all)
	}
	return list
}

func splitRanges(all string) (list []string) {
	for text := range strings.SplitSeq(all, ",") {
		if text = strings.TrimSpace(text); text != "" {
			list = append(list, text)
		}
	}
	return list
}

func loadBalancer(params value.Value) rule {
	b := newBalancers(params)
	return func(s *subject, out *findings) {
		spec := s.object.Field("spec")
		if !is(spec.Field("type"), "LoadBalancer") {
			return
		}
		annotations := s.object.Field("metadata").Field("annotations")
		for i := range b.internal {
			if v, ok := text(annotations.Field(b.internal[i].key)); ok && b.internal[i].has(v) {
				return
			}
		}
		if class, ok := text(spec.Field("loadBalancerClass")); ok && slices.Contains(b.classes, class) {
			return
		}
		b.check(out, sourceRanges(spec, annotations))
	}
}

func (b *balancers) check(out *findings, ranges []string) {
	if len(ranges) == 0 {
		out.add("the load balancer is not internal and accepts all addresses", nil)
	}
	for _, r := range ranges {
		if !b.allow(r) {
			out.add("the load balancer is not internal and accepts "+r, details(nil).text("range", r).end())
		}
	}
}

// admin is who may have a role.
type admin struct{ kind, name, namespace string }

func (a *admin) like(kind, name, namespace string) bool {
	return a.kind == kind && glob(a.name, name, 0) && (a.namespace == "" || glob(a.namespace, namespace, 0))
}

// called is how messages name the subject of a binding.
func (h *holder) called() string {
	switch {
	case !h.hasKind || !h.hasName:
		return "an unnamed subject"
	case h.namespaced && h.kind == "ServiceAccount":
		return h.kind + " " + h.namespace + "/" + h.name
	}
	return h.kind + " " + h.name
}

// adminRules are the parameters of cluster_admin_bindings.
type adminRules struct {
	roles, public, strangers []string
	admins                   []admin
}

func newAdminRules(params value.Value) *adminRules {
	r := &adminRules{roles: strs(params.Field("roles")), public: strs(params.Field("publicRoles")), strangers: strs(params.Field("strangers"))}
	for _, a := range elems(params.Field("subjects")) {
		namespace, _ := text(a.Field("namespace"))
		r.admins = append(r.admins, admin{a.Field("kind").Str(), a.Field("name").Str(), namespace})
	}
	return r
}

// role is one that a binding gives: whether only some may have it, and whether some may not.
type role struct {
	name         string
	strong, open bool
}

func (r *adminRules) role(kind, name string, named bool) role {
	return role{name, kind == "ClusterRole" && slices.Contains(r.roles, name), named && !slices.Contains(r.public, name)}
}

// holder is a subject of a binding.
type holder struct {
	kind, name, namespace        string
	hasKind, hasName, namespaced bool
}

func (r *adminRules) check(s *subject, to role, h holder, out *findings) {
	var who string
	switch stranger := (h.kind == "User" || h.kind == "Group") && slices.Contains(r.strangers, h.name); {
	case stranger && to.open:
		who = ", who may be anyone, has "
	case to.strong && !stranger && !slices.ContainsFunc(r.admins, func(a admin) bool { return a.like(h.kind, h.name, h.namespace) }):
		who = " has "
	default:
		return
	}
	label := h.called()
	msg := label + who + to.name
	if s.kind == "RoleBinding.rbac.authorization.k8s.io" {
		msg += " in namespace " + s.namespace
	}
	out.add(msg, details(nil).text("role", to.name).text("subject", label).end())
}

func clusterAdminBindings(params value.Value) rule {
	r := newAdminRules(params)
	return func(s *subject, out *findings) {
		ref := s.object.Field("roleRef")
		kind, _ := text(ref.Field("kind"))
		name, named := text(ref.Field("name"))
		to := r.role(kind, name, named)
		if !to.strong && !to.open {
			return
		}
		for _, x := range elems(s.object.Field("subjects")) {
			var h holder
			h.kind, h.hasKind = text(x.Field("kind"))
			h.name, h.hasName = text(x.Field("name"))
			h.namespace, h.namespaced = text(x.Field("namespace"))
			r.check(s, to, h, out)
		}
	}
}
