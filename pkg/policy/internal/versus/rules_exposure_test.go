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

// covered reports whether a host is in the tls section of an Ingress, by itself or by its
// wildcard.
func covered(tls []value.Value, host string) bool {
	_, domain, dotted := strings.Cut(host, ".")
	for _, entry := range tls {
		for _, h := range elems(entry.Field("hosts")) {
			name, ok := text(h)
			if !ok {
				continue
			}
			if name == host || dotted && strings.HasPrefix(name, "*.") && name[2:] == domain || !dotted && name == "*" {
				return true
			}
		}
	}
	return false
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
					out.add("host "+host+" is served without TLS", details(nil).text("host", host).end())
				}
			case ok, !h.Defined() && r.Kind() == value.Object, h.Kind() == value.Null:
				catchesAll = true
			}
		}
		if catchesAll {
			out.add("the default backend, or a rule without a host, is served without TLS", nil)
		}
	}
}

// annotation is an annotation with a value in lower case.
type annotation struct{ key, value string }

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
		if all, ok := text(annotations.Field(rangesAnnotation)); ok {
			for text := range strings.SplitSeq(all, ",") {
				if text = strings.TrimSpace(text); text != "" {
					list = append(list, text)
				}
			}
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
			if v, ok := text(annotations.Field(b.internal[i].key)); ok && strings.ToLower(v) == b.internal[i].value {
				return
			}
		}
		if class, ok := text(spec.Field("loadBalancerClass")); ok && slices.Contains(b.classes, class) {
			return
		}
		ranges := sourceRanges(spec, annotations)
		if len(ranges) == 0 {
			out.add("the load balancer is not internal and accepts all addresses", nil)
		}
		for _, r := range ranges {
			if !b.allow(r) {
				out.add("the load balancer is not internal and accepts "+r, details(nil).text("range", r).end())
			}
		}
	}
}

// admin is who may have a role.
type admin struct{ kind, name, namespace string }

func (a *admin) like(kind, name, namespace string) bool {
	return a.kind == kind && glob(a.name, name, 0) && (a.namespace == "" || glob(a.namespace, namespace, 0))
}

// called is how messages name the subject of a binding.
func called(kind, name, namespace value.Value) string {
	k, okKind := text(kind)
	n, okName := text(name)
	ns, ok := text(namespace)
	switch {
	case !okKind || !okName:
		return "an unnamed subject"
	case ok && k == "ServiceAccount":
		return k + " " + ns + "/" + n
	}
	return k + " " + n
}

func clusterAdminBindings(params value.Value) rule {
	roles, public, strangers := strs(params.Field("roles")), strs(params.Field("publicRoles")), strs(params.Field("strangers"))
	var admins []admin
	for _, a := range elems(params.Field("subjects")) {
		namespace, _ := text(a.Field("namespace"))
		admins = append(admins, admin{a.Field("kind").Str(), a.Field("name").Str(), namespace})
	}
	return func(s *subject, out *findings) {
		ref := s.object.Field("roleRef")
		role, ok := text(ref.Field("name"))
		strong := is(ref.Field("kind"), "ClusterRole") && slices.Contains(roles, role)
		open := ok && !slices.Contains(public, role)
		if !strong && !open {
			return
		}
		for _, x := range elems(s.object.Field("subjects")) {
			kind, _ := text(x.Field("kind"))
			name, _ := text(x.Field("name"))
			var who string
			switch stranger := (kind == "User" || kind == "Group") && slices.Contains(strangers, name); {
			case stranger && open:
				who = ", who may be anyone, has "
			case strong && !stranger && !allowedAdmin(admins, kind, name, x.Field("namespace")):
				who = " has "
			default:
				continue
			}
			label := called(x.Field("kind"), x.Field("name"), x.Field("namespace"))
			msg := label + who + role
			if s.kind == "RoleBinding.rbac.authorization.k8s.io" {
				msg += " in namespace " + s.namespace
			}
			out.add(msg, details(nil).text("role", role).text("subject", label).end())
		}
	}
}

func allowedAdmin(admins []admin, kind, name string, namespace value.Value) bool {
	ns, _ := text(namespace)
	return slices.ContainsFunc(admins, func(a admin) bool { return a.like(kind, name, ns) })
}
