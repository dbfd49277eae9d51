{{/* Labels of an object: takes `root` and the name of the component. */}}
{{- define "faultline.labels" -}}
app.kubernetes.io/name: faultline
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .name }}
app.kubernetes.io/part-of: faultline
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* What pods of a component are found by. It never changes: a Deployment's selector cannot. */}}
{{- define "faultline.selector" -}}
{app.kubernetes.io/name: faultline, app.kubernetes.io/component: {{ . }}}
{{- end }}

{{- define "faultline.image" -}}
{{- $image := .Values.image -}}
{{ $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{/* The pod's and the container's security: what the restricted Pod Security Standard asks for, and a read-only root. */}}
{{- define "faultline.podSecurity" -}}
{runAsNonRoot: true, runAsUser: 10001, seccompProfile: {type: RuntimeDefault}}
{{- end }}
{{- define "faultline.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end }}

{{/* The Secrets of every container. */}}
{{- define "faultline.envFrom" -}}
[{secretRef: {name: {{ .Values.existingSecret }}, optional: true}}]
{{- end }}

{{/* Variables of every process: where settings are, and what a site adds. Takes the root. */}}
{{- define "faultline.env" -}}
- {name: FAULTLINE_CONFIG, value: /etc/faultline/faultline.yaml}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The settings' folder whole, never a subPath: the kubelet then exchanges its files at once, without a restart. */}}
{{- define "faultline.volumeMounts" -}}
- {name: config, mountPath: /etc/faultline, readOnly: true}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- define "faultline.volumes" -}}
- {name: config, configMap: {name: faultline}}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
