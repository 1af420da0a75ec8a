package federator.rbac.cluster_admin_bindings_test

import data.federator.rbac.cluster_admin_bindings

parameters := {
	"roles": ["cluster-admin"],
	"subjects": [
		{"kind": "Group", "name": "system:masters"},
		{"kind": "User", "name": "*@sre.example.org"},
		{"kind": "ServiceAccount", "name": "flux", "namespace": "flux-*"},
		{"kind": "ServiceAccount", "name": "helm"},
	],
	"strangers": ["system:anonymous", "system:unauthenticated"],
	"publicRoles": ["system:public-info-viewer"],
}

binding(role, subjects) := of(
	"ClusterRoleBinding.rbac.authorization.k8s.io", "",
	{"roleRef": {"kind": "ClusterRole", "name": role}, "subjects": subjects},
)

in_namespace(kind, role, subjects) := of(
	"RoleBinding.rbac.authorization.k8s.io", "shop",
	{"roleRef": {"kind": kind, "name": role}, "subjects": subjects},
)

of(kind, namespace, object) := {
	"ref": {"member": "fleet/eu-1", "kind": kind, "namespace": namespace, "name": "b"},
	"object": object,
	"member": {"name": "fleet/eu-1", "labels": {}},
	"parameters": parameters,
}

messages(subject) := {v.msg | some v in cluster_admin_bindings.violation with input as subject}

test_admins if {
	messages(binding("cluster-admin", [
		{"kind": "User", "name": "jane"},
		{"kind": "Group", "name": "oncall"},
		{"kind": "ServiceAccount", "namespace": "ci", "name": "deployer"},
	])) == {"User jane has cluster-admin", "Group oncall has cluster-admin", "ServiceAccount ci/deployer has cluster-admin"}
}

test_allowed if {
	messages(binding("cluster-admin", [
		{"kind": "Group", "name": "system:masters"},
		{"kind": "User", "name": "jane@sre.example.org"},
		{"kind": "ServiceAccount", "namespace": "flux-system", "name": "flux"},
		{"kind": "ServiceAccount", "namespace": "anywhere", "name": "helm"},
	])) == set()
}

test_almost_allowed if {
	every subject in [
		{"kind": "User", "name": "system:masters"},
		{"kind": "User", "name": "jane@sre.example.org.evil"},
		{"kind": "ServiceAccount", "namespace": "flux", "name": "flux"},
		{"kind": "ServiceAccount", "namespace": "flux-system", "name": "flux2"},
		{"kind": "Group", "name": "helm"},
	] {
		count(messages(binding("cluster-admin", [subject]))) == 1
	}
}

test_other_roles if {
	messages(binding("view", [{"kind": "User", "name": "jane"}])) == set()
	messages(in_namespace("Role", "cluster-admin", [{"kind": "User", "name": "jane"}])) == set()
}

test_strangers if {
	messages(binding("view", [{"kind": "Group", "name": "system:unauthenticated"}])) == {"Group system:unauthenticated, who may be anyone, has view"}
	messages(binding("cluster-admin", [{"kind": "User", "name": "system:anonymous"}])) == {"User system:anonymous, who may be anyone, has cluster-admin"}
	messages(binding("system:public-info-viewer", [{"kind": "Group", "name": "system:unauthenticated"}])) == set()
	messages(binding("view", [{"kind": "ServiceAccount", "namespace": "a", "name": "system:anonymous"}])) == set()
}

test_in_a_namespace if {
	messages(in_namespace("ClusterRole", "cluster-admin", [{"kind": "User", "name": "jane"}])) == {"User jane has cluster-admin in namespace shop"}
	messages(in_namespace("Role", "reader", [{"kind": "User", "name": "system:anonymous"}])) == {"User system:anonymous, who may be anyone, has reader in namespace shop"}
}

test_no_subjects if {
	messages(binding("cluster-admin", [])) == set()
	messages(binding("cluster-admin", null)) == set()
	messages(of("RoleBinding.rbac.authorization.k8s.io", "shop", {"roleRef": {"kind": "ClusterRole", "name": "cluster-admin"}})) == set()
}

test_odd_objects if {
	every x in ["", 1, true, {}] {
		messages(binding("cluster-admin", x)) == set()
	}
	every x in [null, "x", 1, [], {}, {"kind": "ServiceAccount", "name": "y"}, {"kind": null}] {
		count(messages(binding("cluster-admin", [x]))) == 1
		messages(of("ClusterRoleBinding.rbac.authorization.k8s.io", "", {"roleRef": x, "subjects": [{"kind": "User", "name": "jane"}]})) == set()
		messages(binding(x, [{"kind": "User", "name": "system:anonymous"}])) == {m |
			is_string(x)
			m := "User system:anonymous, who may be anyone, has x"
		}
	}
	messages(binding("cluster-admin", [{"kind": "ServiceAccount", "name": "x"}])) == {"ServiceAccount x has cluster-admin"}
	messages(binding("cluster-admin", [{"kind": 1, "name": "x"}])) == {"an unnamed subject has cluster-admin"}
	messages(binding("cluster-admin", [{}])) == {"an unnamed subject has cluster-admin"}
	messages(of("RoleBinding.rbac.authorization.k8s.io", "shop", {})) == set()
}
