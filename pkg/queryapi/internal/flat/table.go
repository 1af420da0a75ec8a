package flat

import "federator.dev/federator/pkg/aggregate"

// common has what follows in objects of every kind, beside their own key.
var common = []field{
	{"metadata.ownerReferences[]", reference},
}

// table has what follows in objects of a kind, at any of its versions.
var table = map[aggregate.Kind][]field{
	// Workloads.
	"Pod": {
		{"spec", a(podSpec)},
		{"status.nominatedNodeName", name("Node")},
	},
	"PodTemplate":           {{"template.spec", a(podSpec)}},
	"ReplicationController": {{"spec.template.spec", a(podSpec)}},
	"DaemonSet.apps":        {{"spec.template.spec", a(podSpec)}},
	"Deployment.apps":       {{"spec.template.spec", a(podSpec)}},
	"ReplicaSet.apps":       {{"spec.template.spec", a(podSpec)}},
	"StatefulSet.apps": {
		{"spec.template.spec", a(podSpec)},
		{"spec.volumeClaimTemplates[].spec", a(claimSpec)},
		{"spec.volumeClaimTemplates[].status", a(claimStatus)},
	},
	"DaemonSet.extensions":  {{"spec.template.spec", a(podSpec)}},
	"Deployment.extensions": {{"spec.template.spec", a(podSpec)}},
	"ReplicaSet.extensions": {{"spec.template.spec", a(podSpec)}},
	"Job.batch":             {{"spec.template.spec", a(podSpec)}},
	"CronJob.batch": {
		{"spec.jobTemplate.spec.template.spec", a(podSpec)},
		{"status.active[]", reference},
	},
	"PodGroup.scheduling.k8s.io": {{"spec.priorityClassName", name("PriorityClass.scheduling.k8s.io")}},
	"Workload.scheduling.k8s.io": {{"spec.podGroupTemplates[].priorityClassName", name("PriorityClass.scheduling.k8s.io")}},

	// Events.
	"Event": {
		{"involvedObject", reference},
		{"related", reference},
	},
	"Event.events.k8s.io": {
		{"regarding", reference},
		{"related", reference},
	},

	// Nodes.
	"Node": {
		{"spec.configSource.configMap.namespace", namespace},
		{"status.config.active.configMap.namespace", namespace},
		{"status.config.assigned.configMap.namespace", namespace},
		{"status.config.lastKnownGood.configMap.namespace", namespace},
	},
	"PodCertificateRequest.certificates.k8s.io": {{"spec.nodeName", name("Node")}},

	// Storage.
	"PersistentVolume": {{"spec", a(volumeSpec)}},
	"PersistentVolumeClaim": {
		{"spec", a(claimSpec)},
		{"status", a(claimStatus)},
	},
	"VolumeAttachment.storage.k8s.io": {
		{"spec.nodeName", name("Node")},
		{"spec.source.persistentVolumeName", name("PersistentVolume")},
		{"spec.source.inlineVolumeSpec", a(volumeSpec)},
	},
	"CSIStorageCapacity.storage.k8s.io": {{"storageClassName", name("StorageClass.storage.k8s.io")}},
	"VolumeSnapshot.snapshot.storage.k8s.io": {
		{"spec.volumeSnapshotClassName", name("VolumeSnapshotClass.snapshot.storage.k8s.io")},
		{"spec.source.volumeSnapshotContentName", name("VolumeSnapshotContent.snapshot.storage.k8s.io")},
		{"status.boundVolumeSnapshotContentName", name("VolumeSnapshotContent.snapshot.storage.k8s.io")},
	},
	"VolumeSnapshotContent.snapshot.storage.k8s.io": {
		{"spec.volumeSnapshotClassName", name("VolumeSnapshotClass.snapshot.storage.k8s.io")},
		{"spec.volumeSnapshotRef", reference},
	},

	// Devices.
	"ResourceClaim.resource.k8s.io":         {{"spec", a(claimedDevices)}},
	"ResourceClaimTemplate.resource.k8s.io": {{"spec.spec", a(claimedDevices)}},
	"ResourceSlice.resource.k8s.io": {
		{"spec.nodeName", name("Node")},
		{"spec.devices[].nodeName", name("Node")},
		{"spec.devices[].basic.nodeName", name("Node")},
	},
	"ResourcePoolStatusRequest.resource.k8s.io": {{"status.pools[].nodeName", name("Node")}},

	// Network.
	"Endpoints": {
		{"subsets[].addresses[]", a(endpoint)},
		{"subsets[].notReadyAddresses[]", a(endpoint)},
	},
	"EndpointSlice.discovery.k8s.io": {{"endpoints[]", a(endpoint)}},
	"Ingress.networking.k8s.io":      {{"spec.ingressClassName", name("IngressClass.networking.k8s.io")}},
	"Ingress.extensions":             {{"spec.ingressClassName", name("IngressClass.networking.k8s.io")}},
	"IngressClass.networking.k8s.io": {{"spec.parameters", reference}},
	"IPAddress.networking.k8s.io":    {{"spec.parentRef.namespace", namespace}},
	"GatewayClass." + gatewayGroup:   {{"spec.parametersRef", reference}},
	"ReferenceGrant." + gatewayGroup: {{"spec.from[].namespace", namespace}},
	"GRPCRoute." + gatewayGroup:      route,
	"HTTPRoute." + gatewayGroup:      route,
	"TCPRoute." + gatewayGroup:       route,
	"TLSRoute." + gatewayGroup:       route,
	"UDPRoute." + gatewayGroup:       route,
	"Gateway." + gatewayGroup: {
		{"spec.gatewayClassName", name("GatewayClass." + gatewayGroup)},
		{"spec.listeners[].tls.certificateRefs[].namespace", namespace},
	},

	// Access.
	"ClusterRoleBinding.rbac.authorization.k8s.io": {
		{"roleRef", reference},
		{"subjects[].namespace", namespace},
	},
	"RoleBinding.rbac.authorization.k8s.io": {
		{"roleRef", reference},
		{"subjects[].namespace", namespace},
	},
	"ServiceAccount": {{"secrets[]", reference}},

	// The API itself.
	"APIService.apiregistration.k8s.io": {{"spec.service.namespace", namespace}},
	"CustomResourceDefinition.apiextensions.k8s.io": {
		{"spec.conversion.webhook.clientConfig.service.namespace", namespace},
		{"spec.conversion.webhookClientConfig.service.namespace", namespace},
	},
	"MutatingWebhookConfiguration.admissionregistration.k8s.io":   {{"webhooks[].clientConfig.service.namespace", namespace}},
	"ValidatingWebhookConfiguration.admissionregistration.k8s.io": {{"webhooks[].clientConfig.service.namespace", namespace}},
	"MutatingAdmissionPolicyBinding.admissionregistration.k8s.io": {
		{"spec.policyName", name("MutatingAdmissionPolicy.admissionregistration.k8s.io")},
		{"spec.paramRef.namespace", namespace},
	},
	"ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io": {
		{"spec.policyName", name("ValidatingAdmissionPolicy.admissionregistration.k8s.io")},
		{"spec.paramRef.namespace", namespace},
	},
	"FlowSchema.flowcontrol.apiserver.k8s.io": {
		{"spec.priorityLevelConfiguration.name", name("PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io")},
		{"spec.rules[].subjects[].serviceAccount.namespace", namespace},
	},
}

const gatewayGroup = "gateway.networking.k8s.io"

// route is what Gateway API's routes have.
var route = []field{
	{"spec", a(routeSpec)},
	{"status.parents[].parentRef.namespace", namespace},
}

var routeSpec = &shape{"RouteSpec", []field{
	{"parentRefs[].namespace", namespace},
	{"rules[].backendRefs[].namespace", namespace},
	{"rules[].backendRefs[].filters[].requestMirror.backendRef.namespace", namespace},
	{"rules[].filters[].requestMirror.backendRef.namespace", namespace},
}}

var podSpec = &shape{"PodSpec", []field{
	{"nodeName", name("Node")},
	{"priorityClassName", name("PriorityClass.scheduling.k8s.io")},
	{"runtimeClassName", name("RuntimeClass.node.k8s.io")},
	{"volumes[].ephemeral.volumeClaimTemplate.spec", a(claimSpec)},
	{"volumes[].projected.sources[].clusterTrustBundle.name", name("ClusterTrustBundle.certificates.k8s.io")},
}}

var claimSpec = &shape{"PersistentVolumeClaimSpec", []field{
	{"storageClassName", name("StorageClass.storage.k8s.io")},
	{"volumeAttributesClassName", name("VolumeAttributesClass.storage.k8s.io")},
	{"volumeName", name("PersistentVolume")},
	{"dataSource", reference},
	{"dataSourceRef", reference},
}}

var claimStatus = &shape{"PersistentVolumeClaimStatus", []field{
	{"currentVolumeAttributesClassName", name("VolumeAttributesClass.storage.k8s.io")},
	{"modifyVolumeStatus.targetVolumeAttributesClassName", name("VolumeAttributesClass.storage.k8s.io")},
}}

var volumeSpec = &shape{"PersistentVolumeSpec", []field{
	{"storageClassName", name("StorageClass.storage.k8s.io")},
	{"volumeAttributesClassName", name("VolumeAttributesClass.storage.k8s.io")},
	{"claimRef", reference},
	{"azureFile.secretNamespace", namespace},
	{"cephfs.secretRef.namespace", namespace},
	{"cinder.secretRef.namespace", namespace},
	{"csi.controllerExpandSecretRef.namespace", namespace},
	{"csi.controllerPublishSecretRef.namespace", namespace},
	{"csi.nodeExpandSecretRef.namespace", namespace},
	{"csi.nodePublishSecretRef.namespace", namespace},
	{"csi.nodeStageSecretRef.namespace", namespace},
	{"flexVolume.secretRef.namespace", namespace},
	{"glusterfs.endpointsNamespace", namespace},
	{"iscsi.secretRef.namespace", namespace},
	{"rbd.secretRef.namespace", namespace},
	{"scaleIO.secretRef.namespace", namespace},
	{"storageos.secretRef.namespace", namespace},
}}

var endpoint = &shape{"Endpoint", []field{
	{"nodeName", name("Node")},
	{"targetRef", reference},
}}

var claimedDevices = &shape{"ResourceClaimSpec", []field{
	{"devices.requests[].deviceClassName", name("DeviceClass.resource.k8s.io")},
	{"devices.requests[].exactly.deviceClassName", name("DeviceClass.resource.k8s.io")},
	{"devices.requests[].firstAvailable[].deviceClassName", name("DeviceClass.resource.k8s.io")},
}}

// clusterScoped are the kinds of Kubernetes itself that have no namespaces, which
// nobody need be asked about.
var clusterScoped = set(
	"Namespace", "Node", "PersistentVolume", "ComponentStatus",
	"ClusterRole.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io",
	"MutatingAdmissionPolicy.admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	"ValidatingAdmissionPolicy.admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding.admissionregistration.k8s.io",
	"MutatingWebhookConfiguration.admissionregistration.k8s.io", "ValidatingWebhookConfiguration.admissionregistration.k8s.io",
	"APIService.apiregistration.k8s.io", "CustomResourceDefinition.apiextensions.k8s.io",
	"CertificateSigningRequest.certificates.k8s.io", "ClusterTrustBundle.certificates.k8s.io",
	"FlowSchema.flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io",
	"IngressClass.networking.k8s.io", "IPAddress.networking.k8s.io", "ServiceCIDR.networking.k8s.io",
	"RuntimeClass.node.k8s.io", "PriorityClass.scheduling.k8s.io",
	"DeviceClass.resource.k8s.io", "DeviceTaintRule.resource.k8s.io", "ResourceSlice.resource.k8s.io", "ResourcePoolStatusRequest.resource.k8s.io",
	"CSIDriver.storage.k8s.io", "CSINode.storage.k8s.io", "StorageClass.storage.k8s.io",
	"VolumeAttachment.storage.k8s.io", "VolumeAttributesClass.storage.k8s.io",
	"StorageVersion.internal.apiserver.k8s.io", "StorageVersionMigration.storagemigration.k8s.io",
)

func set(kinds ...string) map[string]bool {
	out := make(map[string]bool, len(kinds))
	for _, kind := range kinds {
		out[kind] = true
	}
	return out
}
