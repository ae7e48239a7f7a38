// Rules for the console's page. They say what the formatter and the type checker cannot.
import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["node_modules/"] },
  js.configs.recommended,
  {
    files: ["assets/**/*.js"],
    languageOptions: { sourceType: "module", globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "max-len": ["error", { code: 100, ignoreUrls: true }],
      "no-control-regex": "off",
      "no-implicit-globals": "error",
      "no-restricted-properties": [
        "error",
        { property: "innerHTML", message: "Text is only ever set as text: see h() in ui.js." },
        { property: "outerHTML", message: "Text is only ever set as text: see h() in ui.js." },
      ],
      "no-eval": "error",
      "no-unused-vars": ["error", { args: "all", argsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": "error",
      eqeqeq: "error",
    },
  },
];
