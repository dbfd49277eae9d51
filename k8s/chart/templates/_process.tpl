{{/* The Deployment of one process: takes `root`, its `name`, and for some `strategy`, `env`, `mounts`, `volumes`, `ports`. */}}
{{- define "faultline.process" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $process := index $values.processes .name -}}
{{- $selector := include "faultline.selector" .name -}}
{{- /* These two alone talk to the API server. */ -}}
{{- $token := has .name (list "inventory" "responder") -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "faultline.labels" . | nindent 4 }}
spec:
  {{- if not (and $values.keda.enabled (eq .name "detector")) }}
  replicas: {{ $process.replicas }}
  {{- end }}
  {{- with .strategy }}
  strategy: {{ . }}
  {{- end }}
  {{- if .slow }}
  # A new pod reads its state back before it is ready. After a bad day that takes long, and is no failed rollout.
  progressDeadlineSeconds: 3600
  {{- end }}
  selector:
    matchLabels: {{ $selector }}
  template:
    metadata:
      labels:
        {{- include "faultline.labels" . | nindent 8 }}
      {{- with merge (dict) (.annotations | default dict) $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ .name }}
      automountServiceAccountToken: {{ $token }}
      {{- with $values.imagePullSecrets }}
      imagePullSecrets: {{ toJson . }}
      {{- end }}
      {{- with $values.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      # Long enough to finish the call under way and to leave the consumer group.
      terminationGracePeriodSeconds: 60
      securityContext: {{ include "faultline.podSecurity" . }}
      # Faultline must not stand on the nodes it judges.
      affinity:
        {{- toYaml $values.affinity | nindent 8 }}
      topologySpreadConstraints:
        - topologyKey: topology.kubernetes.io/zone
          maxSkew: 1
          whenUnsatisfiable: {{ $values.spread.zones }}
          labelSelector: {matchLabels: {{ $selector }}}
          matchLabelKeys: [pod-template-hash]
        - topologyKey: kubernetes.io/hostname
          maxSkew: 1
          whenUnsatisfiable: {{ $values.spread.hosts }}
          labelSelector: {matchLabels: {{ $selector }}}
          matchLabelKeys: [pod-template-hash]
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .name }}
          image: {{ .image | default (include "faultline.image" $root) }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: [run, {{ .name }}]
          env:
            {{- include "faultline.env" $root | nindent 12 }}
            {{- if $values.runbooks.existingConfigMap }}
            - {name: FAULTLINE_RESPONDER__RUNBOOK_DIRS, value: '["/etc/faultline/runbooks"]'}
            {{- end }}
            {{- if $values.catalog.existingConfigMap }}
            - {name: FAULTLINE_CATALOG_DIR, value: /etc/faultline/catalog}
            {{- end }}
            {{- with .env }}
            {{- . | nindent 12 }}
            {{- end }}
            {{- with $process.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          envFrom: {{ include "faultline.envFrom" $root }}
          ports:
            # /live, /ready and /metrics.
            - {name: http, containerPort: 8080}
            {{- with .ports }}
            {{- . | nindent 12 }}
            {{- end }}
          # Alive means that work moves on, reading its state back included: slow is no reason to kill it, stuck is. On a busy
          # node an answer may take its time.
          startupProbe: {httpGet: {path: /live, port: http}, periodSeconds: 5, timeoutSeconds: 5, failureThreshold: 36}
          livenessProbe: {httpGet: {path: /live, port: http}, periodSeconds: 15, timeoutSeconds: 5, failureThreshold: 4}
          readinessProbe: {httpGet: {path: /ready, port: http}, periodSeconds: 5, timeoutSeconds: 5}
          resources:
            {{- toYaml $process.resources | nindent 12 }}
          securityContext: {{ include "faultline.containerSecurity" . }}
          volumeMounts:
            {{- include "faultline.volumeMounts" $root | nindent 12 }}
            {{- if $values.runbooks.existingConfigMap }}
            - {name: runbooks, mountPath: /etc/faultline/runbooks, readOnly: true}
            {{- end }}
            {{- if $values.catalog.existingConfigMap }}
            - {name: catalog, mountPath: /etc/faultline/catalog, readOnly: true}
            {{- end }}
            {{- with .mounts }}
            {{- . | nindent 12 }}
            {{- end }}
      volumes:
        {{- include "faultline.volumes" $root | nindent 8 }}
        {{- with $values.runbooks.existingConfigMap }}
        - {name: runbooks, configMap: {name: {{ . }}}}
        {{- end }}
        {{- with $values.catalog.existingConfigMap }}
        - {name: catalog, configMap: {name: {{ . }}}}
        {{- end }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
{{- end }}
