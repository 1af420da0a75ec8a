# METADATA
# title: Managed ConfigMaps have tier gold
# description: A ConfigMap with label managed has label tier=gold.
# custom:
#   severity: medium
#   kinds: [ConfigMap]
#   remedies: [{action: patch, kind: ConfigMap}]
package acme.tier

violation contains {
	"msg": "no tier",
	"remedy": {"action": "patch", "patch": {"metadata": {"labels": {"tier": "gold"}}}},
} if {
	input.object.metadata.labels.managed
	not input.object.metadata.labels.tier == "gold"
}
