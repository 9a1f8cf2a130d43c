package catalog

// Task is a small job for an agent over the demo catalog.
type Task struct {
	Name  string
	Turns []Turn
}

// Turn is what the user says and which tools solve it, in any order.
type Turn struct {
	Say  string
	Need []string
}

// Tasks returns the jobs of the demo: 12 of them, each needing two to five
// tools. The words are a user's, not those of the tools' descriptions.
func Tasks() []Task {
	return []Task{
		{"refund and tell", []Turn{
			{"Order ord_5512kk arrived broken. Give the customer her money back for order ord_5512kk, 49.90 euros.", []string{"orders__refund_order"}},
			{"Now write her an e-mail at ana@mail.example that the refund is on its way.", []string{"email__send_message"}},
		}},
		{"noisy service", []Turn{
			{"Checkout is down for many users. Open an incident with critical severity for the checkout service.", []string{"incidents__create_incident"}},
			{"Roll the checkout deployment back to the version before, 2.3.9.", []string{"kubernetes__rollback_deployment"}},
			{"Put a note on the status page that we are working on it, then publish it.", []string{"incidents__create_status_page_update", "incidents__publish_status_page_update"}},
		}},
		{"new colleague", []Turn{
			{"Mira Lund starts on 2026-04-01 as an analyst. Add her as an employee in department dep_7.", []string{"hr__create_employee"}},
			{"Make a login account for her as well, mira@mail.example.", []string{"identity__create_user_account"}},
			{"Set up her onboarding plan and invite her to an introduction meeting on her first morning.", []string{"hr__create_onboarding_plan", "calendar__create_event"}},
		}},
		{"trip to Oslo", []Turn{
			{"I need to fly from Berlin to Oslo on 2026-05-11, economy. Find a flight and book it.", []string{"travel__list_flights", "travel__book_flight"}},
			{"And a hotel in Oslo for two nights from then.", []string{"travel__create_hotel_stay"}},
			{"What will the weather be like there in those days?", []string{"weather__get_weather_forecast"}},
		}},
		{"late invoice", []Turn{
			{"Which invoices of customer cus_91aa are still open?", []string{"billing__list_invoices"}},
			{"Send a friendly reminder for the oldest invoice.", []string{"billing__remind_invoice"}},
			{"Open a support ticket so that somebody calls the customer on Monday.", []string{"support__create_ticket"}},
		}},
		{"stock runs low", []Turn{
			{"How many of SKU BOLT-M8 do we have in the warehouse?", []string{"warehouse__list_stock_items"}},
			{"Order 500 more from supplier sup_20 with a purchase order.", []string{"procurement__create_purchase_order"}},
			{"Approve the purchase order and send it to the supplier.", []string{"procurement__approve_purchase_order", "procurement__send_purchase_order"}},
		}},
		{"ship the parcel", []Turn{
			{"Make a shipment for order ord_77 to Leeds, 3 kg, express.", []string{"shipping__create_shipment"}},
			{"Print the shipping label.", []string{"shipping__print_shipping_label"}},
			{"Where is the parcel now?", []string{"shipping__track_shipment"}},
		}},
		{"review and release", []Turn{
			{"Review pull request pr_881 and approve it if the tests passed; look at the test report of its build first.", []string{"ci__get_test_report", "repository__review_pull_request"}},
			{"Merge the pull request.", []string{"repository__merge_pull_request"}},
			{"Publish a release of the code, version 1.8.0.", []string{"repository__publish_code_release"}},
			{"Tell the team in the releases channel.", []string{"chat__create_chat_message"}},
		}},
		{"patient visit", []Turn{
			{"Patient pt_338 wants to see doctor doc_5 on Thursday at ten. Make an appointment.", []string{"health__create_appointment"}},
			{"Show me the lab results of the patient.", []string{"health__list_lab_results"}},
			{"Does ibuprofen get along with warfarin? Then refill the old prescription.", []string{"pharmacy__list_drug_interactions", "health__refill_prescription"}},
		}},
		{"warm home", []Turn{
			{"Set the thermostat in the living room to 21 degrees and lock the front door.", []string{"smarthome__update_thermostat", "smarthome__lock_door_lock"}},
			{"Turn on the evening scene.", []string{"smarthome__activate_scene"}},
		}},
		{"stolen laptop", []Turn{
			{"My laptop was stolen! Lock the device dev_44 and cut it off from the network.", []string{"security__lock_endpoint_device", "security__quarantine_endpoint_device"}},
			{"End all my sign-in sessions and revoke my API key key_9.", []string{"identity__revoke_login_session", "security__revoke_api_key"}},
			{"File a claim under policy pol_3 for the laptop, 1,400 euros.", []string{"insurance__create_claim"}},
		}},
		{"better model", []Turn{
			{"Train model mdl_12 again on data set ds_70, 5 epochs with learning rate 0.0003.", []string{"ml__train_model"}},
			{"Deploy the new version to staging, then test the inference endpoint.", []string{"ml__deploy_model", "ml__test_inference_endpoint"}},
			{"Draw up a report on the click rate per week and share it with the team.", []string{"analytics__create_report", "analytics__share_report"}},
		}},
	}
}
